"""Kernels of PolyBench/C 4.2.1 that formulas can state, and matrix products on one-dimensional arrays.

Those of linear algebra and statistics are here, in f32 and the size LARGE; gemm, 2mm and 3mm are among the
kernels of Multi-Level Tactics. What goes on from step to step (stencils over time, factorisations, dynamic
programming) is no formula. `alpha` is 1.5 and `beta` 1.2, as in PolyBench. The products are those of Darknet,
whose arrays have one dimension: element (i, k) of an m x k matrix is A[k * i + k].

What is `plain` is computed with operators and methods that arrays of NumPy, PyTorch and JAX share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.problems import Formula, Operand

ATAX = """function (A[M, N], X[N]) -> (Y) {
  T[m : M] = +(A[m, n] * X[n]);
  Y[n : N] = +(A[m, n] * T[m]);
}"""

BICG = """function (A[N, M], R[N], P[M]) -> (S, Q) {
  S[m : M] = +(R[n] * A[n, m]);
  Q[n : N] = +(A[n, m] * P[m]);
}"""

MVT = """function (A[N, N], X[N], Z[N], Y[N], W[N]) -> (P, Q) {
  S[i : N] = +(A[i, j] * Y[j]);
  P = X + S;
  T[j : N] = +(A[i, j] * W[i]);
  Q = Z + T;
}"""

GEMVER = """function (A[N, N], U[N], V[N], S[N], T[N], Y[N], Z[N]) -> (H, X, W) {
  C[i, 0 : N, 1] = =(U[i]);
  D[i, 0 : N, 1] = =(S[i]);
  H = A + C * V + D * T;
  P[j : N] = +(H[i, j] * Y[i]);
  X = 1.2 * P + Z;
  Q[i : N] = +(H[i, j] * X[j]);
  W = 1.5 * Q;
}"""

GESUMMV = """function (A[N, N], B[N, N], X[N]) -> (Y) {
  S[i : N] = +(A[i, j] * X[j]);
  T[i : N] = +(B[i, j] * X[j]);
  Y = 1.5 * S + 1.2 * T;
}"""

DOITGEN = "function (A[R, Q, S], C[S, P]) -> (B) { B[r, q, p : R, Q, P] = +(A[r, q, s] * C[s, p]); }"

SYRK = """function (A[N, M], C[N, N]) -> (R) {
  T[i, j : N, N] = +(A[i, k] * A[j, k]), i - j < N;
  R = index(C, 0) < index(C, 1) ? C : 1.2 * C + 1.5 * T;
}"""

SYR2K = """function (A[N, M], B[N, M], C[N, N]) -> (R) {
  T[i, j : N, N] = +(A[i, k] * B[j, k]), i - j < N;
  U[i, j : N, N] = +(B[i, k] * A[j, k]), i - j < N;
  R = index(C, 0) < index(C, 1) ? C : 1.2 * C + 1.5 * (T + U);
}"""

SYMM = """function (A[M, M], B[M, N], C[M, N]) -> (R) {
  T[i, j : M, N] = +(A[i, k] * B[k, j]), i - k < M;
  U[i, j : M, N] = +(A[k, i] * B[k, j]), k - i - 1 < M;
  R = 1.2 * C + 1.5 * (T + U);
}"""

TRMM = """function (A[M, M], B[M, N]) -> (R) {
  T[i, j : M, N] = +(A[k, i] * B[k, j]), k - i - 1 < M;
  R = 1.5 * (T + B);
}"""

COVARIANCE = """function (X[N, M]) -> (C) {
  S[0, m : 1, M] = +(X[n, m]);
  D = X - S / N;
  T[i, j : M, M] = +(D[n, i] * D[n, j]);
  C = T / (N - 1);
}"""

CORRELATION = """function (X[N, M]) -> (C) {
  S[0, m : 1, M] = +(X[n, m]);
  D = X - S / N;
  Q = D * D;
  V[0, m : 1, M] = +(Q[n, m]);
  Z = D / sqrt(V);
  C[i, j : M, M] = +(Z[n, i] * Z[n, j]);
}"""


def _vectors(names: str, size: int) -> tuple[Operand, ...]:
    return tuple(Operand(name, (size,)) for name in names)


def atax(m: int, n: int) -> Formula:
    given = (Operand("A", (m, n)), Operand("X", (n,)))
    return Formula("atax", ATAX, given, (n,), lambda A, X: A.T @ (A @ X), 4 * m * n, plain=True)


def bicg(m: int, n: int) -> Formula:
    given = (Operand("A", (n, m)), Operand("R", (n,)), Operand("P", (m,)))
    return Formula(
        "bicg", BICG, given, (m,), lambda A, R, P: (A.T @ R, A @ P), 4 * m * n, also=((n,),), plain=True
    )


def mvt(n: int) -> Formula:
    given = (Operand("A", (n, n)), *_vectors("XZYW", n))

    def compute(A: Any, X: Any, Z: Any, Y: Any, W: Any) -> Any:
        return X + A @ Y, Z + A.T @ W

    return Formula("mvt", MVT, given, (n,), compute, 4 * n * n, also=((n,),), plain=True)


def gemver(n: int) -> Formula:
    given = (Operand("A", (n, n)), *_vectors("UVSTYZ", n))

    def compute(A: Any, U: Any, V: Any, S: Any, T: Any, Y: Any, Z: Any) -> Any:
        H = A + U[:, None] * V + S[:, None] * T
        X = 1.2 * (H.T @ Y) + Z
        return H, X, 1.5 * (H @ X)

    return Formula("gemver", GEMVER, given, (n, n), compute, 8 * n * n, also=((n,), (n,)), plain=True)


def gesummv(n: int) -> Formula:
    given = (Operand("A", (n, n)), Operand("B", (n, n)), Operand("X", (n,)))

    def compute(A: Any, B: Any, X: Any) -> Any:
        return 1.5 * (A @ X) + 1.2 * (B @ X)

    return Formula("gesummv", GESUMMV, given, (n,), compute, 4 * n * n, plain=True)


def doitgen(q: int, r: int, p: int) -> Formula:
    given, gemms = (Operand("A", (r, q, p)), Operand("C", (p, p))), ((r * q, p, p),)
    return Formula(
        "doitgen", DOITGEN, given, (r, q, p), lambda A, C: A @ C, 2 * r * q * p * p, gemms, plain=True
    )


def syrk(m: int, n: int) -> Formula:
    """The lower triangle of C; what is above stays. Operations are those of the triangle."""
    given = (Operand("A", (n, m)), Operand("C", (n, n)))

    def compute(A: Any, C: Any) -> Any:
        return C + lower(0.2 * C + 1.5 * (A @ A.T))

    return Formula("syrk", SYRK, given, (n, n), compute, m * n * (n + 1), plain=True)


def syr2k(m: int, n: int) -> Formula:
    given = (Operand("A", (n, m)), Operand("B", (n, m)), Operand("C", (n, n)))

    def compute(A: Any, B: Any, C: Any) -> Any:
        both = A @ B.T
        return C + lower(0.2 * C + 1.5 * (both + both.T))

    return Formula("syr2k", SYR2K, given, (n, n), compute, 2 * m * n * (n + 1), plain=True)


def symm(m: int, n: int) -> Formula:
    """A symmetric matrix, of which the lower triangle is read, times another."""
    given = (Operand("A", (m, m)), Operand("B", (m, n)), Operand("C", (m, n)))

    def compute(A: Any, B: Any, C: Any) -> Any:
        return 1.2 * C + 1.5 * ((lower(A) + lower(A, -1).T) @ B)

    return Formula("symm", SYMM, given, (m, n), compute, 2 * m * m * n, plain=True)


def trmm(m: int, n: int) -> Formula:
    """The transpose of a lower triangle with ones on its diagonal, times a matrix."""
    given = (Operand("A", (m, m)), Operand("B", (m, n)))

    def compute(A: Any, B: Any) -> Any:
        return 1.5 * (lower(A, -1).T @ B + B)

    return Formula("trmm", TRMM, given, (m, n), compute, m * (m - 1) * n, plain=True)


def covariance(m: int, n: int) -> Formula:
    def compute(X: Any) -> Any:
        D = X - X.mean(0)
        return (D.T @ D) / (n - 1)

    return Formula(
        "covariance", COVARIANCE, (Operand("X", (n, m)),), (m, m), compute, 2 * m * m * n, plain=True
    )


def correlation(m: int, n: int) -> Formula:
    def compute(X: Any) -> Any:
        D = X - X.mean(0)
        Z = D / (D * D).sum(0) ** 0.5
        return Z.T @ Z

    given = (Operand("X", (n, m)),)
    return Formula("correlation", CORRELATION, given, (m, m), compute, 2 * m * m * n, plain=True)


def lower(x: Any, diagonal: int = 0) -> Any:
    """The triangle up to a diagonal, with zeros above."""
    if hasattr(x, "tril"):
        return x.tril(diagonal)
    rows, columns = x.shape
    return x * np.tri(rows, columns, k=diagonal, dtype=x.dtype)


def darknet(kind: str, m: int, n: int, k: int) -> Formula:
    """A product of matrices that are arrays of one dimension, in row-major order; `kind` says of each whether
    it lies as it is (`n`) or transposed (`t`): Darknet's gemm_nn, gemm_nt, gemm_tn, gemm_tt."""
    ta, tb = (letter == "t" for letter in kind)
    a = f"A[i + {m}*k]" if ta else f"A[{k}*i + k]"
    b = f"B[k + {k}*j]" if tb else f"B[{n}*k + j]"
    text = (
        f"function (A[SA], B[SB]) -> (C) {{\n"
        f"  C[{n}*i + j : {m * n}] = +({a} * {b}), i < {m}, j < {n}, k < {k};\n}}"
    )

    def compute(A: Any, B: Any) -> Any:
        left = A.reshape(k, m).T if ta else A.reshape(m, k)
        right = B.reshape(n, k).T if tb else B.reshape(k, n)
        return (left @ right).reshape(m * n)

    given = (Operand("A", (m * k,)), Operand("B", (k * n,)))
    return Formula(f"gemm_{kind}", text, given, (m * n,), compute, 2 * m * n * k, ((m, n, k),), plain=True)
