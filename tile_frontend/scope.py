"""The names of a function under analysis: inputs, dimensions, known scalars, tensors."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NoReturn

from stripe.diag import Span, did_you_mean
from stripe.dtypes import TensorType
from stripe.names import Names
from tile_frontend.elementwise import BodyBuilder, Scalar, Strong, fail, tensor_type
from tile_frontend.polynomials import Evaluator
from tile_frontend.promotion import Weak
from tile_frontend.typed import Elementwise, Statement

_MAX_BYTES = 2**63 - 1


class Abandoned(Exception):
    """The statement uses a name whose own statement is wrong: nothing more to say about it."""


class Scope:
    def __init__(self, reserved: Iterable[str]) -> None:
        """`reserved`: the names that the text gives to tensors, not to be used for temporaries."""
        self._places: dict[str, tuple[str, Span]] = {}
        self._later: dict[str, Span] = {}
        self._failed: set[str] = set()
        self._names = Names(reserved)
        self._temporaries: set[str] = set()
        self.tensors: dict[str, TensorType] = {}
        self.known: dict[str, Weak] = {}  # dimensions, and scalars that are known now
        self.statements: list[Statement] = []

    @property
    def evaluator(self) -> Evaluator:
        return Evaluator(self.integer)

    # -- declaring ---------------------------------------------------------------------------

    def announce(self, name: str, span: Span) -> None:
        """A statement further down assigns `name`: for messages about its use before."""
        self._later.setdefault(name, span)

    def claim(self, name: str, what: str, span: Span) -> None:
        """Take a name for `what` it is. T014: it is taken."""
        if name in self._places:
            other, place = self._places[name]
            line, _ = place.source.line_and_column(place.start)
            fail(
                "T014",
                f"'{name}' is already {other}",
                span,
                f"it is declared at line {line}",
                "help: every name is assigned once; choose another",
            )
        self._places[name] = (what, span)

    def declare(self, name: str, type: TensorType, span: Span) -> None:
        """A tensor is there from now on. T037: it is too large for any machine."""
        check_size(type, name, span)
        self.tensors[name] = type

    def abandon(self, name: str) -> None:
        self._failed.add(name)

    def has_failed(self, name: str) -> bool:
        return name in self._failed

    # -- using -------------------------------------------------------------------------------

    def tensor(self, name: str, span: Span) -> TensorType:
        """T010: there is no such tensor (here)."""
        if name in self.tensors:
            return self.tensors[name]
        self._unknown(name, span, self.tensors)

    def scalar_or_tensor(self, name: str, builder: BodyBuilder, span: Span) -> Scalar:
        """What a name means in an elementwise expression."""
        if name in self.known:
            return self.known[name]
        if name in self.tensors:
            type = self.tensors[name]
            return builder.read(name, type.dtype, type.shape, span)
        self._unknown(name, span, [*self.tensors, *self.known])

    def integer(self, name: str, span: Span) -> int:
        """A dimension, or a scalar that is a known integer. T011, T036."""
        if name in self.known:
            value = self.known[name].value
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            fail(
                "T036",
                f"'{name}' is {value}, not an integer",
                span,
                "help: '/' between numbers gives a float; floordiv(a, b) gives an integer",
            )
        if name in self._failed:
            raise Abandoned
        if name in self.tensors:
            fail("T036", f"'{name}' is a tensor: its value is not known at compile time", span)
        integers = [n for n, known in self.known.items() if isinstance(known.value, int)]
        fail("T011", f"unknown dimension '{name}'", span, *did_you_mean(name, integers))

    def _unknown(self, name: str, span: Span, candidates: Iterable[str]) -> NoReturn:
        if name in self._failed:
            raise Abandoned
        if name in self.known:
            fail("T010", f"'{name}' is a dimension, not a tensor", span)
        visible = [c for c in candidates if c not in self._temporaries]
        if name in self._later:
            place = self._later[name]
            line, _ = place.source.line_and_column(place.start)
            fail("T010", f"tensor '{name}' is used before it is assigned, at line {line}", span)
        fail("T010", f"unknown tensor '{name}'", span, *did_you_mean(name, visible))

    # -- temporaries -------------------------------------------------------------------------

    def fresh(self, wanted: str) -> str:
        name = self._names.fresh(wanted)
        self._temporaries.add(name)
        return name

    def emit(self, statement: Statement, span: Span) -> None:
        self.statements.append(statement)
        self.declare(statement.target, statement.type, span)

    def materialise(self, value: Scalar, builder: BodyBuilder, wanted: str, span: Span) -> str:
        """The name of a tensor that holds a value, made by a statement of its own if need be."""
        strong = value if isinstance(value, Strong) else builder.convert(value, value.dtype, span)
        name = builder.as_read(strong)
        if name is None:
            name = self.fresh(wanted)
            self.emit(Elementwise(name, tensor_type(strong), builder.body(strong), span), span)
        return name


def check_size(type: TensorType, name: str, span: Span) -> None:
    if prod(type.shape) * type.dtype.bytes > _MAX_BYTES:
        fail("T037", f"tensor '{name}' of type {type} needs more than 2^63 - 1 bytes", span)
