"""Which loads take a stored value, which buffers become scalars, and which must not."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

from hwconfigs.load import load_named
from stripe.diag import Source
from stripe.ir import Aggregation, Block, Intrinsic, Load, Program, Store
from stripe.parser import parse
from stripe.passes.base import PassContext
from stripe.passes.scalarize import Scalarize
from tests.support.passes import check_pass, program_of


def leaf(refs: str, body: str) -> str:
    return f"""
        block main [] (in X[0] f32(8)  in Y[0] f32(8)  out R[0]:assign f32(8)  out Q[0]:assign f32(8)) {{
          block q [i:8] (in Y[i] f32(1)  out Q[i]:assign f32(1)) {{ $y = load(Y) f32  Q = store($y) }}
          block b [i:8] (in X[i] f32(1)  in Y[i] f32(1)  out R[i]:assign f32(1)  {refs}) {{
            {body}
          }}
        }}
    """


def scalarized(text: str) -> tuple[Block, list[str]]:
    program, remarks = check_pass(program_of(text), Scalarize())
    return program.root.children[1], [r.message for r in remarks if not r.acted]


def loads_of(block: Block, name: str) -> int:
    return sum(isinstance(s, Load) and s.buffer == name for s in block.statements)


def stores_to(block: Block, name: str) -> int:
    return sum(isinstance(s, Store) and s.buffer == name for s in block.statements)


def test_one_element_buffer_becomes_a_scalar() -> None:
    block, _ = scalarized(
        leaf("new T f32(1)", "$x = load(X) f32  T = store($x)  $t = load(T) f32  R = store($t)")
    )
    assert [r.name for r in block.refinements] == ["X", "Y", "R"]
    assert [type(s) for s in block.statements] == [Load, Store]


def test_each_load_takes_the_store_before_it() -> None:
    block, _ = scalarized(
        leaf(
            "new T f32(1, 1)",
            "$x = load(X) f32  T = store($x)  $a = load(T) f32  $y = load(Y) f32  T = store($y)\n"
            "$b = load(T) f32  $s = sub($a, $b) f32  R = store($s)",
        )
    )
    difference = block.statements[-2]
    assert isinstance(difference, Intrinsic) and difference.operands == ("x", "y")
    assert "T" not in {r.name for r in block.refinements}


def test_chain_of_forwards_ends_at_the_first_value() -> None:
    block, _ = scalarized(
        leaf(
            "new T f32(1)  new U f32(1)",
            "$x = load(X) f32  T = store($x)  $t = load(T) f32  U = store($t)\n"
            "$u = load(U) f32  R = store($u)",
        )
    )
    assert block.statements[-1] == Store("R", "x")


def test_load_after_store_of_an_output_vanishes_and_the_store_stays() -> None:
    block, _ = scalarized(
        leaf(
            "",
            "$x = load(X) f32  R = store($x)  $r = load(R) f32  $s = add($r, $r) f32  R = store($s)",
        )
    )
    assert loads_of(block, "R") == 0 and stores_to(block, "R") == 2


def test_buffer_that_a_child_aggregates_into_stays() -> None:
    block, said = scalarized(
        leaf(
            "new T f32(1)",
            """$x = load(X) f32
            T = store($x)
            block sum [k:3, i = i] (in X[0] f32(1)  out T[0]:add f32(1)) { $x = load(X) f32  T = store($x) }
            $t = load(T) f32
            R = store($t)""",
        )
    )
    assert loads_of(block, "T") == 1 and "T" in {r.name for r in block.refinements}
    assert said == ["'T' stays a buffer: block 'sum' uses it"]


def test_write_of_a_child_ends_what_is_known() -> None:
    block, _ = scalarized(
        leaf(
            "new T f32(2)",
            """$x = load(X) f32
            T = store($x)
            block two [j:1] (out T[0]:assign f32(1)) { $o = constant(2.0) f32  T = store($o) }
            $t = load(T) f32
            R = store($t)""",
        )
    )
    assert loads_of(block, "T") == 1


def test_last_stored_value_of_an_aggregating_view_is_not_what_it_holds() -> None:
    """PlaidML's scalarize forwarded the last stored scalar of a buffer even if it aggregates.

    The verifier refuses such a load; the pass must not rely on that.
    """
    program = parse(
        Source(
            "sum.stripe",
            dedent("""
                block main [] (in X[0] f32(8)  out R[0]:assign f32(8)  out S[]:assign f32()) {
                  block b [i:8] (in X[i] f32(1)  out R[i]:assign f32(1)  out S[]:assign f32()) {
                    $x = load(X) f32  S = store($x)  $s = load(S) f32  R = store($s) }
                }
            """),
        )
    )
    context = PassContext(load_named("generic"))
    assert Scalarize().run(program, context) is not program

    block = program.root.children[0]
    for aggregation in (Aggregation.ADD, Aggregation.MAX):
        refs = tuple(replace(r, aggregation=aggregation) if r.name == "S" else r for r in block.refinements)
        summing = Program(replace(program.root, statements=(replace(block, refinements=refs),)))
        assert Scalarize().run(summing, context) is summing


def test_larger_buffer_stays_but_its_known_loads_vanish() -> None:
    block, _ = scalarized(
        leaf("new T f32(4)", "$x = load(X) f32  T = store($x)  $t = load(T) f32  R = store($t)")
    )
    assert loads_of(block, "T") == 0 and "T" in {r.name for r in block.refinements}


def test_narrow_types_keep_the_rounding_of_the_store() -> None:
    program = program_of("""
        block main [] (in X[0] f32(8)  out R[0]:assign f32(8)) {
          block b [i:8] (in X[i] f32(1)  out R[i]:assign f32(1)  new T bf16(1)) {
            $x = load(X) f32
            $h = cast($x) bf16
            T = store($h)
            $t = load(T) bf16
            $r = cast($t) f32
            R = store($r) }
        }
    """)
    result, _ = check_pass(program, Scalarize())
    assert [type(s).__name__ for s in result.root.children[0].statements] == ["Load", "Cast", "Cast", "Store"]


def test_block_without_buffers_is_the_same_object() -> None:
    program = program_of(leaf("", "$x = load(X) f32  R = store($x)"))
    assert check_pass(program, Scalarize())[0] is program


def test_a_buffer_that_only_blocks_and_specials_use_stays() -> None:
    program = program_of(
        """
        block main [] (in X[0] f32(4):(1)  out R[0]:assign f32(4):(1)) {
          block b [i:4] (in X[i] f32(1):(1)  out R[i]:assign f32(1):(1)  new T f32(1):(1)) {
            block w [] (in X[0] f32(1):(1)  out T[0]:assign f32(1):(1)) {
              $x = load(X) f32
              T = store($x)
            }
            block r [] (in T[0] f32(1):(1)  out R[0]:assign f32(1):(1)) {
              $t = load(T) f32
              R = store($t)
            }
          } }"""
    )
    result, _ = check_pass(program, Scalarize())
    assert result is program


def test_a_buffer_that_a_block_alone_uses_stays() -> None:
    block, _ = scalarized(
        leaf(
            "new T f32(1)  new U f32(1)",
            "block w [] (in X[0] f32(1)  out T[0]:assign f32(1)) { $x = load(X) f32  T = store($x) }\n"
            "$y = load(Y) f32  U = store($y)  $u = load(U) f32  R = store($u)",
        )
    )
    assert [r.name for r in block.refinements] == ["X", "Y", "R", "T"]


def test_a_buffer_of_several_elements_stays() -> None:
    block, _ = scalarized(
        leaf("new T f32(2, 1)", "$x = load(X) f32  T = store($x)  $t = load(T) f32  R = store($t)")
    )
    assert [r.name for r in block.refinements] == ["X", "Y", "R", "T"]
    assert [type(s) for s in block.statements] == [Load, Store, Store]


def test_the_remark_counts_loads_and_buffers() -> None:
    one = leaf("new T f32(1)", "$x = load(X) f32  T = store($x)  $t = load(T) f32  R = store($t)")
    two = leaf(
        "new T f32(1)  new U f32(1)",
        "$x = load(X) f32  T = store($x)  $t = load(T) f32  U = store($t)  $u = load(U) f32  R = store($u)",
    )
    none = leaf("new T f32(2)", "$x = load(X) f32  T = store($x)  $t = load(T) f32  R = store($t)")
    said = [
        [r.message for r in check_pass(program_of(t), Scalarize())[1] if r.acted] for t in (one, two, none)
    ]
    assert said == [
        ["1 load takes the value that was stored; T became a scalar"],
        ["2 loads take the value that was stored; T, U became scalars"],
        ["1 load takes the value that was stored"],
    ]
