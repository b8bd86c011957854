"""What has to cross the boundary of a memory: exact counts of published layers, and the least of tilings."""

from __future__ import annotations

import pytest

import stripec
from simulator import Simulation
from simulator.bounds import compulsory
from simulator.least import Least, least_traffic
from simulator.simulate import simulate
from stripe.ir import Block, Direction, Program
from stripe.poly import Domain, PolyhedralLimit
from stripec.driver import optimise, resolve_target
from tests.differential.test_reference_numbers import ROWS, Layer
from tests.support.problems import of_text

PRODUCT = "function (A[M, K], B[K, N]) -> (R) { R[m, n : M, N] = +(A[m, k] * B[k, n]); }"
PADDED = """function (I[H, W, C], F[3, 3, C, N]) -> (R) {
  R[y, x, n : H, W, N] = +(I[y + r - 1, x + s - 1, c] * F[r, s, c, n]);
}"""
STRIDED = "function (I[H, W]) -> (R) { R[y, x : 8, 8] = +(I[2*y, 3*x]); }"
FUSED = """function (A[M, K], B[K, N], C[N]) -> (R) {
  S[m, n : M, N] = +(A[m, k] * B[k, n]);
  T = S + C;
  R = T < 0 ? 0 : T;
}"""
CHAIN = """function (A[M, K], B[K, N], D[N, L]) -> (R) {
  C[m, n : M, N] = +(A[m, k] * B[k, n]);
  R[m, l : M, L] = +(C[m, n] * D[n, l]);
}"""


def every(program: Program) -> tuple[int, ...]:
    """Compulsory elements of inputs and outputs."""
    root = program.root
    kernels = [s for s in root.statements if isinstance(s, Block)]
    refs = [r for r in root.refinements if r.direction is not Direction.NEW]
    return tuple(compulsory(root, kernels, ref, whole=True) // ref.dtype.bytes for ref in refs)


def needed(program: Program, *names: str) -> dict[str, int]:
    """Compulsory bytes of a program with one kernel."""
    root = program.root
    refs = [r for r in root.refinements if not names or r.name in names]
    return {ref.name: compulsory(root, list(root.children), ref, whole=True) for ref in refs}


def least(program: Program, capacity: int | None) -> Least:
    root = program.root
    (kernel,) = [s for s in root.statements if isinstance(s, Block)]
    found = least_traffic(root, kernel, needed(program), capacity)
    assert isinstance(found, Least)
    return found


# -- compulsory --------------------------------------------------------------------------------------


def layer(own: Layer) -> Program:
    shape = f"i8[{own.r},{own.s},{own.c},{own.n}]"
    return of_text(own.window(), I=f"i8[{own.height},{own.width},{own.c}]", F=shape)


@pytest.mark.parametrize("name", ROWS)
def test_published_layers(name: str) -> None:
    own, expected = ROWS[name][0], ROWS[name][-1]
    assert every(layer(own)) == expected


def test_places_beyond_the_border_and_between_strides_are_not_touched() -> None:
    assert every(of_text(PADDED, I="i8[9,9,4]", F="i8[3,3,4,5]")) == (9 * 9 * 4, 9 * 4 * 5, 9 * 9 * 5)
    assert every(of_text(STRIDED, I="i8[16,30]")) == (64, 64)


def test_inside_of_a_program_nothing_has_to_cross() -> None:
    program = of_text(CHAIN, A="i8[8,8]", B="i8[8,8]", D="i8[8,8]")
    assert every(program) == (64, 64, 64, 64)
    first, second = (s for s in program.root.statements if isinstance(s, Block))
    between = program.root.refinement("C")
    assert compulsory(program.root, [first], between) == compulsory(program.root, [second], between) > 0


# -- the least of tilings ----------------------------------------------------------------------------


def by_hand(m: int, n: int, k: int, capacity: int) -> int:
    """The least bytes of a product of i8 into i32, for powers of two, by trying everything one by one."""
    found = []

    def sizes(whole: int) -> list[int]:
        return [2**e for e in range(whole.bit_length())]

    for a in sizes(m):
        for b in sizes(n):
            for c in sizes(k):
                if a * c + c * b + 4 * a * b > capacity:
                    continue
                trips = {"m": m // a, "n": n // b, "k": k // c}
                for order in (("m", "n", "k"), ("m", "k", "n"), ("n", "m", "k"), ("n", "k", "m"),
                              ("k", "m", "n"), ("k", "n", "m")):  # fmt: skip
                    visits = []
                    for indexes in ("mk", "kn", "mn"):
                        inner, times = True, 1
                        for name in reversed(order):
                            if name in indexes:
                                inner = inner and trips[name] == 1
                            elif not inner:
                                times *= trips[name]
                        visits.append(times)
                    found.append(m * k * visits[0] + k * n * visits[1] + 4 * m * n * (2 * visits[2] - 1))
    return min(found)


@pytest.mark.parametrize("capacity", [6, 40, 200, 1000, 4000, 100_000])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (64, 8, 32), (4, 64, 64)])
def test_a_product_as_by_hand(m: int, n: int, k: int, capacity: int) -> None:
    program = of_text(PRODUCT, A=f"i8[{m},{k}]", B=f"i8[{k},{n}]")
    found = least(program, capacity).total
    assert found <= by_hand(m, n, k, capacity)  # other sizes than powers of two may need less
    assert found >= m * k + k * n + 4 * m * n
    if capacity == 100_000:
        assert found == m * k + k * n + 4 * m * n


@pytest.mark.parametrize(
    "program",
    [
        of_text(PRODUCT, A="i8[50,70]", B="i8[70,30]"),
        of_text(PADDED, I="i8[20,20,16]", F="i8[3,3,16,24]"),
        of_text(STRIDED, I="i8[16,30]"),
    ],
    ids=["product", "padded", "strided"],
)
def test_more_capacity_is_never_worse(program: Program) -> None:
    crossing, before = needed(program), None
    for capacity in (16, 64, 256, 1024, 4096, 16384, 65536, None):
        found = least_traffic(program.root, program.root.children[0], crossing, capacity)
        if isinstance(found, str):
            assert before is None
            continue
        assert all(found.bytes[name] >= size for name, size in crossing.items())
        assert before is None or found.total <= before
        before = found.total
    assert before == sum(crossing.values())


def test_nothing_fits() -> None:
    program = of_text(PRODUCT, A="i8[8,8]", B="i8[8,8]")
    found = least_traffic(program.root, program.root.children[0], needed(program), 5)
    assert found == "no tile of it fits in 5 bytes"
    assert least(program, 6).total > 0  # one element of each


def test_what_is_near_costs_nothing() -> None:
    program = of_text(PRODUCT, A="i8[64,64]", B="i8[64,64]")
    found = least_traffic(program.root, program.root.children[0], needed(program, "A"), 64)
    assert isinstance(found, Least)
    assert found.bytes == {"A": 64 * 64}


TRIANGLE = "function (A[N, N]) -> (L) { L[i, j : N, N] = =(A[i, j]), i - j < N; }"
TRIANGULAR = "function (A[N, N], B[N, M]) -> (C) { C[i, j : N, M] = +(A[i, k] * B[k, j]), i - k < N; }"


def test_of_a_triangle_each_element_once() -> None:
    program = of_text(TRIANGLE, A="i8[9,9]")
    kernel = program.root.children[-1]
    crossing = {r.name: compulsory(program.root, [kernel], r) for r in program.root.refinements}
    assert crossing == {"A": 45, "L": 45}
    for capacity in (2, 30, None):  # an element of each; some; all
        found = least_traffic(program.root, kernel, crossing, capacity)
        assert isinstance(found, Least)
        assert found.bytes == crossing


def stayed(found: Least, points: list[dict[str, int]], places: tuple[str, ...]) -> int:
    """The elements of a buffer that come near while the tiles are gone through: what is near goes whenever a
    loop goes on that it depends on, or one around such a loop."""
    order = [name for group in found.orders[0] for name in group]
    several = [n for n in order if len({p[n] // found.tile[n] for p in points}) > 1]
    last = max((order.index(n) + 1 for n in several if n in places), default=0)
    tiles = {tuple(p[n] // found.tile[n] for n in order) for p in points}
    inside: dict[tuple[int, ...], set[tuple[int, ...]]] = {tile: set() for tile in tiles}
    for p in points:
        inside[tuple(p[n] // found.tile[n] for n in order)].add(tuple(p[n] for n in places))
    total, held, before = 0, set[tuple[int, ...]](), None
    for tile in sorted(tiles):
        if tile[:last] != before:
            total, held, before = total + len(held), set(), tile[:last]
        held |= inside[tile]
    return total + len(held)


@pytest.mark.parametrize("capacity", [6, 50, 200, 400])
def test_of_a_triangular_product_what_its_tiles_touch(capacity: int) -> None:
    program = of_text(TRIANGULAR, A="i8[12,12]", B="i8[12,20]")
    kernel = program.root.children[-1]
    crossing = {r.name: compulsory(program.root, [kernel], r) for r in program.root.refinements}
    assert crossing == {"A": 12 * 13 // 2, "B": 12 * 20, "C": 4 * 12 * 20}
    found = least_traffic(program.root, kernel, crossing, capacity)
    assert isinstance(found, Least)
    points = [{"i": i, "j": j, "k": k} for i in range(12) for j in range(20) for k in range(i + 1)]
    came = {
        name: stayed(found, points, tuple(places)) for name, places in (("A", "ik"), ("B", "kj"), ("C", "ij"))
    }
    results = 12 * 20
    assert found.bytes == {"A": came["A"], "B": came["B"], "C": 4 * (2 * came["C"] - results)}
    assert (found.total > sum(crossing.values())) == (capacity < 400)


def test_two_views_of_a_buffer_share_what_they_touch() -> None:
    program = of_text("function (A[N]) -> (R) { R[i : 100] = =(A[i] + A[i + 7]); }", A="i8[107]")
    crossing = needed(program)
    for capacity in (3, 60):
        found = least_traffic(program.root, program.root.children[0], crossing, capacity)
        assert isinstance(found, Least)
        tiles = [range(at, min(at + found.tile["i"], 100)) for at in range(0, 100, found.tile["i"])]
        assert found.bytes == {"A": sum(len({i + d for i in t for d in (0, 7)}) for t in tiles), "R": 100}


# -- in simulations ----------------------------------------------------------------------------------


def test_of_very_many_indexes_there_is_no_least() -> None:
    names = ", ".join(f"i{n}" for n in range(20))
    sizes = ", ".join(f"N{n}" for n in range(20))
    text = f"function (A[{sizes}]) -> (R) {{ R[{names} : {sizes}] = +(A[{names}]); }}"
    program = of_text(text, A=f"f32[{', '.join(['2'] * 20)}]")
    (kernel,) = program.root.children
    found = least_traffic(program.root, kernel, {"A": 4 << 20, "R": 4 << 20}, 64)
    assert found == "it has 20 indexes, and tilings of 16 are searched at most"


def simulated(text: str, target: str) -> Simulation:
    names = ("A", "B", "C") if text is FUSED else ("A", "B", "D") if text is CHAIN else ("A", "B")
    shapes = {name: "i8[100,100]" if name != "C" else "i8[100]" for name in names}
    return stripec.simulate(text, shapes=shapes, target=target, counts="closed")


@pytest.mark.parametrize("target", ["systolic_16", "many_core", "vector_dsp"])
@pytest.mark.parametrize("text", [PRODUCT, FUSED, CHAIN], ids=["product", "fused", "chain"])
def test_beside_every_number(text: str, target: str) -> None:
    found = simulated(text, target)
    assert {b.kernel for b in found.bounds} >= {""}
    for bound in found.bounds:
        assert bound.least is not None and not bound.reason
        assert bound.ours >= bound.compulsory
        assert bound.least >= bound.compulsory
        assert bound.ratio == (bound.ours / bound.compulsory if bound.compulsory else None)
    for memory in {b.memory for b in found.bounds}:
        (whole,) = [b for b in found.bounds if not b.kernel and not b.tensor and b.memory == memory]
        every = [b for b in found.bounds if b.kernel and b.memory == memory]
        assert whole.ours == sum(b.ours for b in every if b.tensor)
        for kernel in {b.kernel for b in every}:
            parts = [b for b in every if b.kernel == kernel and b.tensor]
            for total in [b for b in every if b.kernel == kernel and (not b.tensor or len(parts) == 1)]:
                assert total.ours == sum(b.ours for b in parts)
                assert total.least == sum(b.least or 0 for b in parts)
                assert total.least <= total.ours


def test_both_ways_of_counting_have_the_same_bounds() -> None:
    hw = resolve_target("systolic_16")
    done = optimise(of_text(PRODUCT, A="i8[40,40]", B="i8[40,40]"), hw, verify="off", name="product")
    closed, run = (
        simulate(done.program, hw, counts=counts, untiled=done.untiled) for counts in ("closed", "simulated")
    )
    assert closed.bounds == run.bounds
    assert closed.bounds
    assert not simulate(done.program, hw, counts="closed").bounds


def test_without_a_count_the_run_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    def given_up(self: Domain) -> int:
        raise PolyhedralLimit

    hw = resolve_target("systolic_16")
    done = optimise(of_text(PRODUCT, A="i8[40,40]", B="i8[40,40]"), hw, verify="off", name="product")
    monkeypatch.setattr(Domain, "count", given_up)
    found = simulate(done.program, hw, counts="simulated", untiled=done.untiled)
    assert found.cycles
    assert found.bounds == []
    assert found.no_bounds == "what is touched is too complicated to count"
