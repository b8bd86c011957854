"""stencil with a use that is given."""

from __future__ import annotations

import pytest

from stripe.diag import CompileError
from stripe.passes.base import PassContext
from stripe.passes.choices import Given
from stripe.passes.stencil import Stencil
from stripe.passes.stencil_choice import StencilUse
from tests.support.passes import program_of
from tests.support.stencil_targets import MAC_16, machine

TWO_RESULTS = """
    block main [] (in A[0] i8(64):(1)  out R[0]:assign i8(64):(1)  out Q[0]:assign i8(64):(1)) {
      block r [x:64] (in A[x] i8(1)  out R[x]:assign i8(1)  out Q[x]:assign i8(1)) {
        $a = load(A) i8
        R = store($a)
        Q = store($a) } }
"""


def test_where_nothing_fits_the_reason_is_told() -> None:
    (name,) = [s.name for s in machine(MAC_16).stencils]
    given = Given({"main/r": StencilUse(name, {"i": "x"})})
    with pytest.raises(CompileError) as refused:
        Stencil().run(program_of(TWO_RESULTS), PassContext(machine(MAC_16), given=given))
    assert "it is no use of 'mac16': it has 2 stores" in refused.value.diagnostics[0].message
