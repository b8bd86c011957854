"""Contractions, and what cost models find for them."""

from __future__ import annotations

from hwconfigs.load import load_named
from hwconfigs.model import HwConfig, Memory
from stripe.analysis.cost import COST_MODELS
from stripe.analysis.cost_problem import Problem
from stripe.analysis.search import Found, search
from stripe.ir import Block, Program, contiguous
from stripe.parser import parse
from stripe.visit import views_of


def convolution(height: int, width: int, inputs: int, outputs: int, window: int) -> Program:
    """A convolution with a border of zeros, in the layout of Figures 4 and 5 of the paper."""
    pad = window // 2
    image = contiguous((height, width, inputs))
    weights = contiguous((window, window, outputs, inputs))
    result = contiguous((height, width, outputs))
    return parse(
        f"""
        block main [] (
          in I[0, 0, 0] i8({height}, {width}, {inputs}):{image}
          in F[0, 0, 0, 0] i8({window}, {window}, {outputs}, {inputs}):{weights}
          out O[0, 0, 0]:assign i8({height}, {width}, {outputs}):{result}
        ) {{
          block o [x:{height}, y:{width}, i:{window}, j:{window}, c:{inputs}, k:{outputs}] (
            x + i - {pad} >= 0
            {height - 1 + pad} - x - i >= 0
            y + j - {pad} >= 0
            {width - 1 + pad} - y - j >= 0
            in I[x + i - {pad}, y + j - {pad}, c] i8(1, 1, 1)
            in F[i, j, k, c] i8(1, 1, 1, 1)
            out O[x, y, k]:add i8(1, 1, 1)
          ) {{
            $i = load(I) i8
            $f = load(F) i8
            $o = mul($i, $f) i8
            O = store($o)
          }}
        }}
        """
    )


def machine(capacity: int, line: int) -> HwConfig:
    """A target with one memory, and a farther one without a limit."""
    near = Memory("NEAR", "cached", bytes=capacity, line_bytes=line, backing="FAR")
    return HwConfig("test", "for tests", "interpreter", memories=(near, Memory("FAR", "explicit")))


def contraction(m: int, n: int, k: int, *, a: str = "m, k", b: str = "k, n") -> Program:
    """C[m, n] = sum over k of A * B, with the dimensions of A and B in the given order."""
    sizes = {"m": m, "n": n, "k": k}
    shape_a, shape_b = (tuple(sizes[name] for name in access.split(", ")) for access in (a, b))
    return parse(
        f"""
        block main [] (in A[0, 0] f32{shape_a}  in B[0, 0] f32{shape_b}  out C[0, 0]:assign f32({m}, {n})) {{
          block c [m:{m}, n:{n}, k:{k}] (
            in A[{a}] f32(1, 1)  in B[{b}] f32(1, 1)  out C[m, n]:add f32(1, 1)
          ) {{
            $a = load(A) f32
            $b = load(B) f32
            $c = mul($a, $b) f32
            C = store($c)
          }}
        }}
        """
    )


def kernel(program: Program) -> Block:
    return program.root.children[0]


def problem_of(
    program: Program, hw: HwConfig, memory: str, names: tuple[str, ...] = (), reductions: bool = False
) -> Problem:
    found = hw.memory(memory)
    assert found is not None
    return Problem(kernel(program), views_of(program.root, {}), hw, found, names, reductions)


def found_by(cost: str, problem: Problem, limit: int = 4096) -> Found:
    model = COST_MODELS[cost](problem)
    assert model.refusal() == ""
    return search(model, limit)


def register_tile(program: Program, target: str) -> dict[str, int]:
    found = found_by("roofline", problem_of(program, load_named(target), "REG"))
    assert found.capacity is not None
    assert all(c.needed <= found.capacity for c in found.fitting)
    assert all(c.needed > found.capacity for c in found.excluded)
    return dict(found.fitting[0].sizes)
