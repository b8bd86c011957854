"""Problems of the benchmark, and texts, as programs, for tests of what passes make of them."""

from __future__ import annotations

from benchmarks.problems import Problem
from stripe.ir import Program
from stripec.driver import read_program
from stripec.tensors import as_type


def of_text(text: str, **types: str) -> Program:
    """The program of a text, on inputs of these types."""
    return read_program(text).lower({name: as_type(t, name) for name, t in types.items()}, ())


def lowered(problem: Problem) -> Program:
    """The program of a problem, with none of its operands bound."""
    types = {o.name: as_type((o.type, o.shape), o.name) for o in problem.operands}
    return read_program(problem.tile).lower(types, ())
