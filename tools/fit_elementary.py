"""Fits the polynomials of codegen_cpu/elementary_coefficients.py, and the tables of
codegen_cpu/elementary_tables.py, and writes these files.

    python tools/fit_elementary.py            # compare with the file; fails where it differs
    python tools/fit_elementary.py --write

Each is the minimax polynomial under a weight (Remez' exchange in 50 digits, with mpmath) whose
coefficients have the type in which they are used: one after the other is rounded, from the
lowest power up, and those that remain are fitted anew. The weight turns an error of the
polynomial into a relative error of the function; the largest one found stands beside each polynomial.

A table has a polynomial for each of 16 pieces of a range, in powers of the distance from a place near
the middle of the piece: one where the function is almost exactly a float, so that the first
coefficient has no error of its own. The others are fitted by least squares. That of the logarithm has
minimax polynomials, all in powers of the same variable; that of exp has powers of two alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import mpmath
from mpmath import mp, mpf

FOLDER = Path(__file__).parent.parent / "codegen_cpu"
POLYNOMIALS, TABLES = FOLDER / "elementary_coefficients.py", FOLDER / "elementary_tables.py"
PIECES = 16
PLACES = 512  # floats around the middle of a piece, among which its place is chosen
NODES = 24  # where a piece is fitted
Real = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """`function(x)`, approximated by powers of `variable(x)` for `low` <= x <= `high`."""

    name: str
    meaning: str
    function: Real
    weight: Real
    low: float
    high: float
    terms: int
    digits: int  # of the type that the coefficients are rounded to, in bits
    variable: Real = lambda x: x
    again: bool = (
        True  # fit those that remain anew: not for few terms around 0, where odd powers alone don't fit
    )


def remez(fit: Fit, fixed: Sequence[mpf], grid: Sequence[tuple[mpf, mpf, mpf]]) -> tuple[list[mpf], mpf]:
    """The best coefficients that follow the `fixed` ones, and the weighted error that they leave.

    `grid`: variable, value and weight at points that lie dense enough to stand for all.
    """
    count = fit.terms - len(fixed)
    rest = [(v, f - mpmath.polyval(list(reversed(fixed)), v) if fixed else f, w) for v, f, w in grid]
    if count == 0:
        return [], max(abs(f * w) for _, f, w in rest)
    first = len(fixed)
    # Nodes of Chebyshev's kind to begin with; the grid is spaced alike.
    chosen = [round(i * (len(rest) - 1) / count) for i in range(count + 1)]
    for _ in range(30):
        rows = [[rest[at][0] ** (first + k) for k in range(count)] for at in chosen]
        matrix = mpmath.matrix(
            [[*row, (-1) ** i / rest[at][2]] for i, (row, at) in enumerate(zip(rows, chosen, strict=True))]
        )
        solved = list(mpmath.lu_solve(matrix, mpmath.matrix([rest[at][1] for at in chosen])))
        found, level = solved[:-1], abs(solved[-1])
        backwards = [*reversed(found), *[mpf(0)] * first]
        errors = [(mpmath.polyval(backwards, v) - f) * w for v, f, w in rest]
        chosen = _alternating(errors, count + 1)
        worst = max(map(abs, errors))
        if worst <= level * mpf("1.001"):
            break
    return found, worst


def _alternating(errors: Sequence[mpf], count: int) -> list[int]:
    """The places of `count` extrema whose signs alternate, the largest among them."""
    peaks: list[int] = []
    for at, error in enumerate(errors):
        if peaks and (errors[peaks[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[peaks[-1]]):
                peaks[-1] = at
        else:
            peaks.append(at)
    while len(peaks) > count:
        if len(peaks) - count == 1:
            del peaks[0 if abs(errors[peaks[0]]) < abs(errors[peaks[-1]]) else -1]
            continue
        weakest = min(range(len(peaks)), key=lambda i: abs(errors[peaks[i]]))
        # With a peak inside goes its neighbour, or two of one sign would meet.
        neighbour = {0: [0], len(peaks) - 1: [weakest]}.get(weakest)
        if neighbour is None:
            other = min((weakest - 1, weakest + 1), key=lambda i: abs(errors[peaks[i]]))
            neighbour = sorted((weakest, other), reverse=True)
        for at in neighbour:
            del peaks[at]
    if len(peaks) < count:
        raise ValueError(f"{len(peaks)} extrema of {count}: the function is a polynomial already, or noise")
    return peaks


def rounded(value: mpf, digits: int) -> mpf:
    with mpmath.workprec(digits):
        return +value


def fitted(fit: Fit) -> tuple[list[mpf], mpf]:
    """The rounded coefficients, lowest power first, and the largest weighted error."""
    points = 24 * (fit.terms + 1)
    middle, half = (mpf(fit.low) + mpf(fit.high)) / 2, (mpf(fit.high) - mpf(fit.low)) / 2
    places = [middle - half * mpmath.cospi(mpf(i) / points) for i in range(points + 1)]
    # Where the variable is 0 the function is a limit: its neighbours stand for it.
    places = [x for x in places if abs(fit.variable(x)) > mpf(10) ** -12]
    grid = [(fit.variable(x), fit.function(x), abs(fit.weight(x))) for x in places]
    done: list[mpf] = []
    while len(done) < fit.terms:
        best, _ = remez(fit, done, grid)
        done += [rounded(c, fit.digits) for c in (best[:1] if fit.again else best)]
    return done, remez(fit, done, grid)[1]


def _log_tail(s: mpf) -> mpf:
    """(log((1 + s) / (1 - s)) / s - 2) / s**2."""
    return (mpmath.log((1 + s) / (1 - s)) / s - 2) / s**2


def _squared(x: mpf) -> mpf:
    return x * x


def fits() -> list[Fit]:
    exp_meaning = "(exp(r) - 1 - r) / r**2, |r| <= log(2) / 2; the error is that of exp(r)"
    exp_function: Real = lambda r: (mpmath.expm1(r) - r) / r**2  # noqa: E731
    exp_weight: Real = lambda r: r**2 / mpmath.exp(r)  # noqa: E731
    tanh_meaning = "(tanh(x) - x) / x**3 in powers of x**2, |x| <= 0.625"
    tanh_tail: Real = lambda x: (mpmath.tanh(x) - x) / x**3  # noqa: E731
    tanh_weight: Real = lambda x: x**3 / mpmath.tanh(x)  # noqa: E731
    sin_tail: Real = lambda r: (mpmath.sin(r) - r) / r**3  # noqa: E731
    cos_tail: Real = lambda r: (mpmath.cos(r) - 1 + r * r / 2) / r**4  # noqa: E731
    low, high = float(mpmath.sqrt(mpf(1) / 2) - 1), float(mpmath.sqrt(2) - 1)
    s_limit = float((mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1) * 1.0001)
    quarter = float(mpmath.pi / 4 * mpf("1.0001"))
    half_turn = float(mpmath.pi / 2 * mpf("1.001"))
    return [
        Fit("EXP_F32", exp_meaning, exp_function, exp_weight, -0.3468, 0.3468, 5, 24),
        Fit("EXP_F64", exp_meaning, exp_function, exp_weight, -0.3468, 0.3468, 10, 53),
        Fit(
            "EXP_NEAR_F32",
            "the same, |r| <= log(2) / 32",
            exp_function,
            exp_weight,
            -0.02167,
            0.02167,
            2,
            24,
            again=False,
        ),
        Fit(
            "EXP_SHORT",
            "the same, in f64 for f32 results",
            exp_function,
            exp_weight,
            -0.3468,
            0.3468,
            6,
            53,
        ),
        Fit("TANH_F64", tanh_meaning, tanh_tail, tanh_weight, 0.0, 0.625, 11, 53, _squared),
        Fit(
            "SINH_F64",
            "(sinh(x) - x) / x**3 in powers of x**2, |x| <= 1",
            lambda x: (mpmath.sinh(x) - x) / x**3,
            lambda x: x**3 / mpmath.sinh(x),
            0.0,
            1.0,
            8,
            53,
            _squared,
        ),
        Fit(
            "LOG_F32",
            "(log(1 + t) - t + t**2 / 2) / t**3, sqrt(1/2) <= 1 + t <= sqrt(2)",
            lambda t: (mpmath.log1p(t) - t + t * t / 2) / t**3,
            lambda t: t**3 / mpmath.log1p(t),
            low,
            high,
            9,
            24,
        ),
        Fit(
            "LOG_SHORT",
            "the same, in f64 for f32 results",
            lambda t: (mpmath.log1p(t) - t + t * t / 2) / t**3,
            lambda t: t**3 / mpmath.log1p(t),
            low,
            high,
            13,
            53,
        ),
        Fit(
            "LOG_NEAR_F32",
            "the same as LOG_F32, -0.0372 <= t <= 1/16",
            lambda t: (mpmath.log1p(t) - t + t * t / 2) / t**3,
            lambda t: t**3 / mpmath.log1p(t),
            -0.0372,
            0.0625,
            4,
            24,
            again=False,
        ),
        Fit(
            "LOG_F64",
            "(log((1 + s) / (1 - s)) / s - 2) / s**2 in powers of s**2, |s| <= (sqrt(2) - 1)**2",
            _log_tail,
            lambda s: s**2 / 2,
            0.0,
            s_limit,
            7,
            53,
            _squared,
        ),
        Fit(
            "LOG_LONG",
            "(what LOG_F64 fits - 2 / 3) / s**2; the error is that of the logarithm",
            lambda s: (_log_tail(s) - mpf(2) / 3) / s**2,
            lambda s: s**4 / 2,
            0.0,
            s_limit,
            8,
            53,
            _squared,
        ),
        Fit(
            "SIN_F32",
            "(sin(r) - r) / r**3 in powers of r**2, |r| <= pi / 2",
            sin_tail,
            lambda r: r**3 / mpmath.sin(r),
            0.0,
            half_turn,
            4,
            24,
            _squared,
        ),
        Fit(
            "SIN_F64",
            "(sin(r) - r) / r**3 in powers of r**2, |r| <= pi / 4",
            sin_tail,
            lambda r: r**3 / mpmath.sin(r),
            0.0,
            quarter,
            6,
            53,
            _squared,
        ),
        Fit(
            "COS_F64",
            "(cos(r) - 1 + r**2 / 2) / r**4 in powers of r**2, |r| <= pi / 4",
            cos_tail,
            lambda r: r**4 / mpmath.cos(r),
            0.0,
            quarter,
            6,
            53,
            _squared,
        ),
        Fit(
            "ERF_F32",
            "-log(1 - erf(x)) / x - 1, 0 <= x <= 3.9375; the error is that of erf(x)",
            lambda x: -mpmath.log(mpmath.erfc(x)) / x - 1,
            lambda x: x * mpmath.erfc(x) / mpmath.erf(x),
            0.0,
            3.9375,
            9,
            24,
        ),
        Fit(
            "ERF_NEAR_F64",
            "erf(x) / x - 1 in powers of x**2, |x| <= 1",
            lambda x: mpmath.erf(x) / x - 1,
            lambda x: x / mpmath.erf(x),
            0.0,
            1.0,
            13,
            53,
            _squared,
        ),
        Fit(
            "ERF_FAR_F64",
            "-log(1 - erf(x)), 1 <= x <= 6",
            lambda x: -mpmath.log(mpmath.erfc(x)),
            lambda x: mpmath.erfc(x) / mpmath.erf(x),
            1.0,
            6.0,
            17,
            53,
        ),
        Fit(
            "ASIN_F64",
            "(asin(x) - x) / x**3 in powers of x**2, |x| <= 1 / 2",
            lambda x: (mpmath.asin(x) - x) / x**3,
            lambda x: x**3 / mpmath.asin(x),
            0.0,
            0.5,
            12,
            53,
            _squared,
        ),
        Fit(
            "ATAN_F64",
            "(atan(x) - x) / x**3 in powers of x**2, |x| <= sqrt(2) - 1",
            lambda x: (mpmath.atan(x) - x) / x**3,
            lambda x: x**3 / mpmath.atan(x),
            0.0,
            float(mpmath.sqrt(2) - 1) * 1.0001,
            11,
            53,
            _squared,
        ),
    ]


def split(value: mpf, digits: Sequence[int]) -> list[mpf]:
    """Parts of so many bits each whose sum is `value` as nearly as they can be."""
    parts: list[mpf] = []
    for count in digits:
        parts.append(rounded(value - sum(parts, mpf(0)), count))
    return parts


def chunks(value: Callable[[], mpf], bits: int, count: int) -> list[mpf]:
    """The first digits of a number between 0 and 1 in base 2**bits, as numbers that add up to it."""
    with mpmath.workprec(bits * count + 64):
        digits = [int(mpmath.floor(value() * mpf(2) ** (bits * at))) % 2**bits for at in range(1, count + 1)]
    return [mpf(digit) / mpf(2) ** (bits * at) for at, digit in enumerate(digits, start=1)]


def constants() -> list[tuple[str, str, list[mpf]]]:
    """Name, meaning and parts of the constants that are longer than one float."""
    log2, pi = mpmath.log(2), +mpmath.pi
    exact = "times a whole number below"
    return [
        ("LOG2_F32", f"log(2): the first part {exact} 2**8 is exact", split(log2, (16, 24))),
        ("LOG2_F64", f"log(2): the first part {exact} 2**11 is exact", split(log2, (42, 53))),
        ("PI_F32", "pi", split(pi, (24, 24, 24))),
        ("PI_F64", f"pi: the first part {exact} 2**22, or its half, is exact", split(pi, (31, 53))),
        (
            "HALF_PI",
            f"pi / 2: the first three parts {exact} 2**20 are exact",
            split(pi / 2, (33, 33, 33, 53)),
        ),
        ("HALF_PI_PAIR", "pi / 2", split(pi / 2, (53, 53))),
        (
            "INVERSE_PI",
            "1 / pi: each part times an f32 is exact in f64",
            chunks(lambda: 1 / mpmath.pi, 24, 9),
        ),
        (
            "INVERSE_HALF_PI",
            "2**500 * 2 / pi: each part times half the digits of an f64 is exact",
            [part * mpf(2) ** 500 for part in chunks(lambda: 2 / mpmath.pi, 24, 49)],
        ),
        ("TWO_THIRDS", "2 / 3", split(mpf(2) / 3, (53, 53))),
    ]


@dataclass(frozen=True)
class Table:
    """`function(x)`, 0 <= x <= `top`, in pieces as long as `step` around its multiples."""

    name: str
    meaning: str
    function: Real
    step: float
    top: float
    terms: int


def tables() -> list[Table]:
    return [
        Table("ERF", "erf(x) / x", lambda x: mpmath.erf(x) / x, 0.265625, 3.96875, 6),
        Table("TANH", "tanh(x) / x", lambda x: mpmath.tanh(x) / x, 0.625, 9.3125, 7),
    ]


def tabled(table: Table) -> tuple[list[list[mpf]], mpf]:
    """For each piece its place and its coefficients, lowest power first; the largest relative error."""
    pieces, worst = [], mpf(0)
    half = mpf(table.step) / 2

    def even(x: mpf) -> mpf:
        return table.function(abs(x) if x else mpf(10) ** -25)

    for number in range(PIECES):
        place = _place(even, number * mpf(table.step), half)
        nodes = [
            number * mpf(table.step) + half * mpmath.cospi(mpf(2 * i + 1) / (2 * NODES)) for i in range(NODES)
        ]
        found = [rounded(even(place), 24)]
        while len(found) < table.terms:
            found.append(rounded(_least_squares(even, place, nodes, found, table.terms), 24))
        errors = (mpmath.polyval(found[::-1], x - place) / even(x) - 1 for x in nodes)
        worst = max(worst, *map(abs, errors))
        pieces.append([place, *found])
    return pieces, worst


def _place(function: Real, middle: mpf, half: mpf) -> mpf:
    """A float near the middle where the function is as near to a float as it is anywhere there."""
    candidates = [rounded(middle + half * mpf(i) / (8 * PLACES), 24) for i in range(1, PLACES + 1)]

    def error(x: mpf) -> mpf:
        value = function(x)
        return abs(rounded(value, 24) / value - 1)

    return min(candidates, key=error)


def _least_squares(function: Real, place: mpf, nodes: Sequence[mpf], found: Sequence[mpf], terms: int) -> mpf:
    """The first of the coefficients that follow those `found`, by relative errors at the nodes."""
    first, scale = len(found), max(abs(x - place) for x in nodes)
    rows = [[((x - place) / scale) ** k / function(x) for k in range(first, terms)] for x in nodes]
    wanted = [1 - mpmath.polyval(list(found)[::-1], x - place) / function(x) for x in nodes]
    matrix = mpmath.matrix(rows)
    solved = mpmath.lu_solve(matrix.T * matrix, matrix.T * mpmath.matrix(wanted))
    return solved[0] / scale**first


def log_pieces() -> tuple[list[list[mpf]], mpf]:
    """log(1 + t) / t for 3/4 <= 1 + t < 3/2, in pieces by the first four bits behind the point of 1 + t as a
    float: those of numbers from 1 on, then of those below, which lie twice as dense."""
    pieces, worst = [], mpf(0)
    for number in range(PIECES):
        unit = 1.0 if number < PIECES // 2 else 0.5
        low, high = (unit * (1 + (number + end) / PIECES) - 1 for end in (0, 1))
        fit = Fit(f"LOG {number}", "", _log_slope, lambda t: 1 / _log_slope(t), low, high, 4, 24)
        coefficients, error = fitted(fit)
        pieces.append(coefficients)
        worst = max(worst, error)
    return pieces, worst


def _log_slope(t: mpf) -> mpf:
    return mpmath.log1p(t) / t


def roots_of_two() -> list[mpf]:
    return [rounded(mpf(2) ** (mpf(number) / PIECES), 24) for number in range(PIECES)]


def inverses() -> tuple[list[mpf], list[mpf], list[mpf]]:
    """For the pieces of the logarithm, numbers that bring what lies in them near 1, and in two parts what
    their logarithm lacks: with log(2) more for numbers below 1, whose exponent is taken to be one less.

    They are multiples of 1/32: what the product with a float m is away from 1 is a float, too. The first
    parts are multiples of 2**-16.
    """
    log2 = split(mpmath.log(2), (16, 24))
    factors, firsts, seconds = [], [], []
    for number in range(PIECES):
        below = number >= PIECES // 2
        middle = (mpf(1) / 2 if below else mpf(1)) * (1 + (number + mpf(1) / 2) / PIECES)
        factor = mpf(1) if number in (0, PIECES - 1) else mpmath.nint(32 / middle) / 32
        exact = -mpmath.log(factor)
        first = mpmath.nint(exact * 2**16) / 2**16
        factors.append(factor)
        firsts.append(first + below * log2[0])
        seconds.append(rounded(exact - first + below * log2[1], 24))
    return factors, firsts, seconds


def row_lines(row: Sequence[mpf], indent: str) -> list[str]:
    """The 16 numbers of a row."""
    return [
        indent + ", ".join(f"{float(x)!r}".replace("e-0", "e-") for x in row[at : at + 4]) + ","
        for at in range(0, PIECES, 4)
    ]


def table_text() -> str:
    """The module of tables."""
    parts = [
        '"""Functions in 16 pieces: their places, then the coefficients of each power of the distance\n'
        'from them, the lowest first. Made by tools/fit_elementary.py; not to be edited."""\n'
    ]
    for table in tables():
        pieces, error = tabled(table)
        print(f"{table.name}: 2**{float(mpmath.log(error, 2)):.1f}", file=sys.stderr)
        lines = [f"# {table.meaning}; relative error 2**{float(mpmath.log(error, 2)):.1f}"]
        lines += [f"{table.name}_STEP, {table.name}_TOP = {table.step!r}, {table.top!r}", f"{table.name} = ("]
        parts.append("\n".join([*lines, *_rows(pieces), ")  # fmt: skip"]) + "\n")
    pieces, error = log_pieces()
    size = f"2**{float(mpmath.log(error, 2)):.1f}"
    print(f"LOG: {size}", file=sys.stderr)
    heading = f"# log(1 + t) / t in powers of t, by the first bits of 1 + t; relative error {size}"
    parts.append("\n".join([heading, "LOG = (", *_rows(pieces), ")  # fmt: skip"]) + "\n")
    factors, firsts, seconds = inverses()
    rows = [
        ("ROOTS_OF_TWO", "2**(number / 16)", roots_of_two()),
        ("INVERSES", "multiples of 1/32 near 1 / (1 + t) by the first bits of 1 + t", factors),
        ("LOGS_FIRST", "-log(inverse), and log(2) more where 1 + t is below 1: multiples of 2**-16", firsts),
        ("LOGS_SECOND", "what they lack", seconds),
    ]
    for name, meaning, row in rows:
        made = [f"# {meaning}", f"{name} = (", *row_lines(row, "    "), ")  # fmt: skip"]
        parts.append("\n".join(made) + "\n")
    return "\n".join(parts)


def _rows(pieces: Sequence[Sequence[mpf]]) -> list[str]:
    lines = []
    for column in zip(*pieces, strict=True):
        lines += ["    (", *row_lines(column, "        "), "    ),"]
    return lines


def listed(name: str, meaning: str, numbers: Sequence[mpf]) -> str:
    lines = [f"    {float(x)!r},".replace("e-0", "e-").replace("e+", "e") for x in numbers]
    return "\n".join([f"# {meaning}", f"{name} = (", *lines, ")"]) + "\n"


def text() -> str:
    """The module of coefficients."""
    parts = [
        '"""Minimax polynomials, the highest power first, and constants in parts. Made by\n'
        'tools/fit_elementary.py; not to be edited."""\n'
    ]
    parts += [listed(*constant) for constant in constants()]
    for fit in fits():
        coefficients, error = fitted(fit)
        print(f"{fit.name}: 2**{float(mpmath.log(error, 2)):.1f}", file=sys.stderr)
        meaning = f"{fit.meaning}; relative error 2**{float(mpmath.log(error, 2)):.1f}"
        parts.append(listed(fit.name, meaning, coefficients[::-1]))
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the files")
    options = parser.parse_args()
    mp.dps = 50
    same = True
    for target, made in ((TABLES, table_text()), (POLYNOMIALS, text())):
        if options.write:
            target.write_text(made, encoding="utf-8")
        elif not target.is_file() or target.read_text(encoding="utf-8") != made:
            print(f"{target} differs: run with --write")
            same = False
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
