"""Tile text -> Stripe. The language is described in docs/tile.md.

    compile_tile  a program for inputs of known types
    signature     the names of the inputs and outputs, before any type is known

Data flows: tokens -> expressions, parser (tree) -> sema (typed) -> lower. Within sema: scope
(names), elementwise (values), contractions (ranges), tensor_functions (reshaping).
"""

from __future__ import annotations

from collections.abc import Mapping

from stripe.diag import Source
from stripe.dtypes import TensorType
from stripe.ir import Program
from tile_frontend.lower import lower
from tile_frontend.parser import parse
from tile_frontend.sema import analyse
from tile_frontend.tree import Signature, written_form, written_type

__all__ = ["Signature", "compile_tile", "signature"]


def compile_tile(source: Source, types: Mapping[str, TensorType]) -> Program:
    """The Stripe program of a Tile function, for inputs of these types.

    Raises CompileError with diagnostics T001 ... for what is wrong with the text, and T017 to
    T022 where the types do not fit its signature.
    """
    return lower(analyse(parse(source), types))


def signature(source: Source) -> Signature:
    """The names of a Tile function and of its inputs and outputs. CompileError T001 to T005."""
    function = parse(source)
    return Signature(
        function.name,
        tuple(param.name.text for param in function.params),
        tuple(output.text for output in function.outputs),
        tuple((param.name.text, type_) for param in function.params if (type_ := written_type(param))),
        tuple((param.name.text, written_form(param)) for param in function.params),
    )
