"""Programs that are no single contraction: copies, reductions, normalisations, chains, attention.

Each has its Tile text and the same in NumPy; the NumPy function computes in the type that it is given.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.problems import Array, Formula, Function, Operand

COPY = "function (X[M, N]) -> (Y) { Y[m, n : M, N] = =(X[m, n]); }"
TRANSPOSE = "function (X[M, N]) -> (Y) { Y[n, m : N, M] = =(X[m, n]); }"
ROW_SUM = "function (X[M, N]) -> (Y) { Y[m : M] = +(X[m, n]); }"
COLUMN_SUM = "function (X[M, N]) -> (Y) { Y[n : N] = +(X[m, n]); }"

SOFTMAX = """function (X[N, C]) -> (R) {
  M[n, 0 : N, 1] = >(X[n, c]);
  E = exp(X - M);
  S[n, 0 : N, 1] = +(E[n, c]);
  R = E / S;
}"""

LAYERNORM = """function (X[N, C], G[C], B[C]) -> (R) {
  S[n, 0 : N, 1] = +(X[n, c]);
  D = X - S / C;
  Q = D * D;
  V[n, 0 : N, 1] = +(Q[n, c]);
  K = 1 / sqrt(V / C + 0.00001);
  R = D * K * G + B;
}"""

CHAIN = """function (X[N, C], G[C], B[C]) -> (R) {
  T = X * G + B;
  R = relu(T) * 0.5 + X;
}"""

GELU = """function (X[N, C]) -> (R) {
  R = 0.5 * X * (1 + erf(X * 0.7071067811865476));
}"""

MASKED = -1e30  # a score that is hidden

ATTENTION = """function (Q[H, N, D], K[H, M, D], V[H, M, D]) -> (R) {
  S[h, i, j : H, N, M] = +(Q[h, i, d] * K[h, j, d]);
  T = SCORES;
  L[h, i, 0 : H, N, 1] = >(T[h, i, j]);
  E = exp(T - L);
  Z[h, i, 0 : H, N, 1] = +(E[h, i, j]);
  P = E / Z;
  R[h, i, d : H, N, D] = +(P[h, i, j] * V[h, j, d]);
}"""

# The same with a constraint: sums and the maximum take in what is not hidden.
TRIANGLE = """function (Q[H, N, D], K[H, N, D], V[H, N, D]) -> (R) {
  S[h, i, j : H, N, N] = +(Q[h, i, d] * K[h, j, d]), i - j < N;
  T = SCORES;
  L[h, i, 0 : H, N, 1] = >(T[h, i, j]), i - j < N;
  E = exp(T - L);
  Z[h, i, 0 : H, N, 1] = +(E[h, i, j]), i - j < N;
  P = E / Z;
  R[h, i, d : H, N, D] = +(P[h, i, j] * V[h, j, d]), i - j < N;
}"""

GEMM = """function (A[M, K], B[K, N], C[M, N]) -> (R) {
  T[m, n : M, N] = +(A[m, k] * B[k, n]);
  R = 1.5 * T + 1.2 * C;
}"""

TWO_PRODUCTS = """function (A[I, K], B[K, J], C[J, L], D[I, L]) -> (R) {
  T[i, j : I, J] = +(A[i, k] * B[k, j]);
  S = 1.5 * T;
  U[i, l : I, L] = +(S[i, j] * C[j, l]);
  R = U + 1.2 * D;
}"""

THREE_PRODUCTS = """function (A[I, K], B[K, J], C[J, M], D[M, L]) -> (G) {
  E[i, j : I, J] = +(A[i, k] * B[k, j]);
  F[j, l : J, L] = +(C[j, m] * D[m, l]);
  G[i, l : I, L] = +(E[i, j] * F[j, l]);
}"""


def copy(m: int, n: int) -> Formula:
    return Formula("copy", COPY, (Operand("X", (m, n)),), (m, n), np.array)


def copy_1d(n: int) -> Formula:
    text = "function (X[N]) -> (Y) { Y[n : N] = =(X[n]); }"
    return Formula("copy1d", text, (Operand("X", (n,)),), (n,), np.array)


def transpose(m: int, n: int) -> Formula:
    return Formula(
        "transpose", TRANSPOSE, (Operand("X", (m, n)),), (n, m), lambda X: np.ascontiguousarray(X.T)
    )


def permute(shape: tuple[int, ...], order: tuple[int, ...]) -> Formula:
    letters = "abcdef"[: len(shape)]
    out = [letters[axis] for axis in order]
    dims, sizes = ", ".join(letters.upper()), ", ".join(out).upper()
    text = f"function (X[{dims}]) -> (Y) {{ Y[{', '.join(out)} : {sizes}] = =(X[{', '.join(letters)}]); }}"
    name = f"permute{''.join(map(str, order))}"
    gives = tuple(shape[axis] for axis in order)
    return Formula(
        name, text, (Operand("X", shape),), gives, lambda X: np.ascontiguousarray(X.transpose(order))
    )


def convolution_3d(n: int, d: int, h: int, w: int, ci: int, co: int) -> Formula:
    """3 x 3 x 3 taps over pictures (n, d + 2, h + 2, w + 2, ci), channels last, filters (3, 3, 3, ci, co)."""
    text = (
        "function (I[N, D, H, W, C], F[P, R, S, C, K]) -> (O) {\n"
        f"  O[n, z, y, x, k : N, {d}, {h}, {w}, K] = +(I[n, z + p, y + r, x + s, c] * F[p, r, s, c, k]);\n}}"
    )

    def compute(I: Array, F: Array) -> Array:
        taps = ((p, r, s) for p in range(3) for r in range(3) for s in range(3))
        windows = (I[:, p : p + d, r : r + h, s : s + w] @ F[p, r, s] for p, r, s in taps)
        return np.asarray(sum(windows))

    given = (Operand("I", (n, d + 2, h + 2, w + 2, ci)), Operand("F", (3, 3, 3, ci, co), constant=True))
    return Formula("conv3d", text, given, (n, d, h, w, co), compute, 2 * 27 * n * d * h * w * ci * co)


def row_sum(m: int, n: int, output_twice: bool = False) -> Formula:
    counted = 4 * (m * n + m * (2 if output_twice else 1))
    return Formula(
        "row_sum", ROW_SUM, (Operand("X", (m, n)),), (m,), lambda X: X.sum(axis=1), counted=counted
    )


def column_sum(m: int, n: int, output_twice: bool = False) -> Formula:
    counted = 4 * (m * n + n * (2 if output_twice else 1))
    return Formula(
        "column_sum", COLUMN_SUM, (Operand("X", (m, n)),), (n,), lambda X: X.sum(axis=0), counted=counted
    )


def reduction(kind: str, axis: str, m: int, n: int) -> Formula:
    """The `max` or `mean` of each row or column, as `kind` and `axis` say."""
    row = axis == "row"
    kept, size, of = ("m", "M", "N") if row else ("n", "N", "M")
    if kind == "max":
        text = f"function (X[M, N]) -> (Y) {{ Y[{kept} : {size}] = >(X[m, n]); }}"
    else:
        text = f"function (X[M, N]) -> (Y) {{ S[{kept} : {size}] = +(X[m, n]); Y = S / {of}; }}"
    compute = (lambda X: X.max(axis=int(row))) if kind == "max" else (lambda X: X.mean(axis=int(row)))
    given = (Operand("X", (m, n)),)
    return Formula(f"{axis}_{kind}", text, given, (m if row else n,), compute)


def middle_sum(a: int, b: int, c: int) -> Formula:
    text = "function (X[A, B, C]) -> (Y) { Y[a, c : A, C] = +(X[a, b, c]); }"
    return Formula("middle_sum", text, (Operand("X", (a, b, c)),), (a, c), lambda X: X.sum(axis=1))


UNARY: dict[str, tuple[str, Function]] = {
    "exp": ("exp(X)", np.exp),
    "log": ("log(X)", np.log),
    "tanh": ("tanh(X)", np.tanh),
    "sigmoid": ("1 / (1 + exp(-X))", lambda X: 1 / (1 + np.exp(-X))),
}


def unary(name: str, n: int, c: int) -> Formula:
    """A function of each element: one of UNARY."""
    right, compute = UNARY[name]
    operand = Operand("X", (n, c), positive=name == "log")
    return Formula(name, f"function (X[N, C]) -> (R) {{ R = {right}; }}", (operand,), (n, c), compute)


def power(n: int, c: int) -> Formula:
    text = "function (X[N, C], Y[N, C]) -> (R) { R = pow(X, Y); }"
    return Formula("pow", text, (Operand("X", (n, c), positive=True), Operand("Y", (n, c))), (n, c), np.power)


def sum_of_eight(n: int, c: int) -> Formula:
    names = "ABDEFGHK"
    text = f"function ({', '.join(f'{x}[N, C]' for x in names)}) -> (R) {{ R = {' + '.join(names)}; }}"
    return Formula(
        "add8", text, tuple(Operand(x, (n, c)) for x in names), (n, c), lambda *X: sum(X[1:], X[0])
    )


def add_row(n: int, c: int) -> Formula:
    text = "function (X[N, C], Y[C]) -> (R) { R = X + Y; }"
    return Formula("add_row", text, (Operand("X", (n, c)), Operand("Y", (c,))), (n, c), np.add)


def softmax_with_numpy(X: Array) -> Array:
    e = np.exp(X - X.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def softmax(n: int, c: int) -> Formula:
    return Formula("softmax", SOFTMAX, (Operand("X", (n, c)),), (n, c), softmax_with_numpy)


def _row_vectors(n: int, c: int) -> tuple[Operand, ...]:
    return Operand("X", (n, c)), Operand("G", (c,), constant=True), Operand("B", (c,), constant=True)


def _layernorm(X: Array, G: Array, B: Array) -> Array:
    D = X - X.mean(axis=1, keepdims=True)
    return np.asarray(D / np.sqrt((D * D).mean(axis=1, keepdims=True) + 1e-5) * G + B)


def layernorm(n: int, c: int) -> Formula:
    return Formula("layernorm", LAYERNORM, _row_vectors(n, c), (n, c), _layernorm)


def chain(n: int, c: int) -> Formula:
    def compute(X: Array, G: Array, B: Array) -> Array:
        return np.asarray(np.maximum(X * G + B, 0) * 0.5 + X)

    return Formula("chain", CHAIN, _row_vectors(n, c), (n, c), compute)


def erf(x: Array) -> Array:
    """The error function in float64, one element at a time, each distinct result of `math.erf`."""
    return np.fromiter((math.erf(v) for v in x.ravel()), x.dtype, x.size).reshape(x.shape)


def gelu(n: int, c: int) -> Formula:
    def compute(X: Array) -> Array:
        return np.asarray(0.5 * X * (1 + erf(X * 0.7071067811865476)))

    return Formula("gelu", GELU, (Operand("X", (n, c)),), (n, c), compute)


def attention(
    heads: int, rows: int, depth: int, keys: int | None = None, causal: bool = False, masked: bool = True
) -> Formula:
    """Of `rows` queries over `keys` keys, as many if not said; `causal`: row i sees the keys up to i, the
    others are `masked`, or left out by a constraint. What is hidden counts as well."""
    scale, keys = 1 / math.sqrt(depth), rows if keys is None else keys
    scores, text = f"S * {scale!r}", ATTENTION if masked else TRIANGLE
    if causal and masked:
        scores = f"index(S, 1) < index(S, 2) ? {MASKED!r} : {scores}"

    def compute(Q: Array, K: Array, V: Array) -> Array:
        found = np.matmul(Q, K.transpose(0, 2, 1)) * scale
        if causal:
            found = np.where(np.tri(rows, keys, dtype=bool), found, MASKED)
        return np.asarray(np.matmul(softmax_with_numpy(found), V))

    shape, given = (heads, rows, depth), (heads, keys, depth)
    return Formula(
        "causal_attention" if causal else "attention", text.replace("SCORES", scores),
        (Operand("Q", shape), Operand("K", given), Operand("V", given)),
        shape, compute, 4 * heads * rows * keys * depth,
    )  # fmt: skip


def gemm(m: int, n: int, k: int) -> Formula:
    def compute(A: Array, B: Array, C: Array) -> Array:
        return np.asarray(1.5 * np.matmul(A, B) + 1.2 * C)

    given = (Operand("A", (m, k)), Operand("B", (k, n)), Operand("C", (m, n)))
    return Formula("gemm", GEMM, given, (m, n), compute, 2 * m * n * k, ((m, n, k),))


def two_products(i: int, j: int, k: int, l: int) -> Formula:
    def compute(A: Array, B: Array, C: Array, D: Array) -> Array:
        return np.asarray(np.matmul(1.5 * np.matmul(A, B), C) + 1.2 * D)

    given = (Operand("A", (i, k)), Operand("B", (k, j)), Operand("C", (j, l)), Operand("D", (i, l)))
    gemms = ((i, j, k), (i, l, j))
    return Formula(
        "2mm", TWO_PRODUCTS, given, (i, l), compute, sum(2 * a * b * c for a, b, c in gemms), gemms
    )


def three_products(i: int, j: int, k: int, l: int, m: int) -> Formula:
    def compute(A: Array, B: Array, C: Array, D: Array) -> Array:
        return np.asarray(np.matmul(np.matmul(A, B), np.matmul(C, D)))

    given = (Operand("A", (i, k)), Operand("B", (k, j)), Operand("C", (j, m)), Operand("D", (m, l)))
    gemms = ((i, j, k), (j, l, m), (i, l, j))
    return Formula(
        "3mm", THREE_PRODUCTS, given, (i, l), compute, sum(2 * a * b * c for a, b, c in gemms), gemms
    )
