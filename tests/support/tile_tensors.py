"""The Tile programs of the corpus with functions of whole tensors, and those of several statements."""

# A program and its reference read best on a line each; tensors are called I as everywhere.
# ruff: noqa: E501, E741

from __future__ import annotations

import numpy as np

from tests.support.tile_cases import TileCase, elementwise, erf, f16, f32, relu, scattered, softmax

TENSORS = (
    elementwise("gather", "gather(D, I)", "D=f32[5,3] I=i32[2,4]", lambda D, I: D[I], integers=(0, 5)),
    elementwise("gather_clamps", "gather(D, I)", "D=f32[5] I=i64[6]", lambda D, I: D[np.clip(I, 0, 4)]),
    elementwise(
        "gather_axis_1", "gather(D, I, 1)", "D=f32[3,5] I=u8[4]", lambda D, I: D[:, I], integers=(0, 5)
    ),
    elementwise(
        "gather_in_expression",
        "gather(2 * D, I + 1) - 1",
        "D=f32[5] I=i32[6]",
        lambda D, I: 2 * D[I + 1] - 1,
        integers=(0, 4),
    ),
    elementwise(
        "scatter",
        "scatter(U, I, L)",
        "U=f32[6,2] I=i32[6] L=f32[4,2]",
        lambda U, I, L: scattered(U, I, L),
        integers=(0, 4),
    ),
    elementwise(
        "scatter_f16",
        "scatter(U, I, L)",
        "U=f16[60] I=i32[60] L=f16[4]",
        lambda U, I, L: scattered(U.astype(f32), I, L).astype(f16),
        integers=(0, 4),
    ),
    elementwise(
        "scatter_drops",
        "scatter(U, I, L)",
        "U=i32[6] I=i32[6] L=f16[4]",
        lambda U, I, L: scattered(U[(I >= 0) & (I < 4)], I[(I >= 0) & (I < 4)], L),
        integers=(-2, 6),
    ),
    TileCase(
        "index",
        "function (A[M, N]) -> (I, J) { I = index(A, 0); J = index(A, 1) * 2 + index(A, 0); }",
        "A=f32[3,4]",
        lambda A: (
            np.indices((3, 4))[0].astype(np.int32),
            (2 * np.indices((3, 4))[1] + np.indices((3, 4))[0]).astype(np.int32),
        ),
    ),
    TileCase(
        "index_broadcast",
        "function (A[M, N], V[N]) -> (I) { I = A + index(V, 0); }",
        "A=f64[3,4] V=f32[4]",
        lambda A, V: A + np.arange(4, dtype=np.int32),
    ),
    TileCase(
        "iota_mask",
        "function (A[N, N]) -> (B) { B = index(A, 0) < index(A, 1) ? 0 : A; }",
        "A=f32[4,4]",
        lambda A: np.tril(A),
    ),
    TileCase(
        "shape",
        "function (A) -> (S, T) { S = shape(A); T = shape(S) + 1; }",
        "A=f32[3,4,5]",
        lambda A: (np.asarray([3, 4, 5], np.int32), np.asarray([4], np.int32)),
    ),
    TileCase(
        "shape_of_rank_0", "function (A) -> (S) { S = shape(A); }", "A=f32[]", lambda A: np.zeros(0, np.int32)
    ),
    elementwise("reshape_split", "reshape(A, 2, 3, 4)", "A=f32[6,4]", lambda A: A.reshape(2, 3, 4)),
    elementwise("reshape_merge", "reshape(A, 24)", "A=f32[2,3,4]", lambda A: A.reshape(24)),
    elementwise("reshape_refined", "reshape(A, 8, 3)", "A=i32[4,6]", lambda A: A.reshape(8, 3)),
    elementwise("reshape_general", "reshape(A, 3, 2)", "A=i32[2,3]", lambda A: A.reshape(3, 2)),
    elementwise(
        "reshape_general_4d", "reshape(A, 4, 5, 3, 2)", "A=i32[2,3,4,5]", lambda A: A.reshape(4, 5, 3, 2)
    ),
    elementwise("reshape_units", "reshape(A, 3, 1, 2)", "A=f32[1,6,1]", lambda A: A.reshape(3, 1, 2)),
    elementwise(
        "reshape_of_expression", "reshape(A + 1, 6) * 2", "A=f32[2,3]", lambda A: (A + 1).reshape(6) * 2
    ),
    elementwise("reshape_to_scalar", "reshape(A)", "A=f32[1,1]", lambda A: A.reshape(())),
    elementwise("reshape_empty", "reshape(A, 3, 0)", "A=f32[0,5]", lambda A: A.reshape(3, 0)),
)

PIPELINES = (
    TileCase(
        "softmax",
        "function (X[N, C]) -> (R) {\n  M[n, 0 : N, 1] = >(X[n, c]);\n  E = exp(X - M);\n"
        "  S[n, 0 : N, 1] = +(E[n, c]);\n  R = E / S;\n}",
        "X=f32[4,6]",
        lambda X: softmax(X),
    ),
    TileCase(
        "layer_norm",
        "function (X[N, C], G[C], B[C]) -> (Y) { // normalise, then scale\n"
        " S[n, 0 : N, 1] = +(X[n, c]); D = X - S / C; V[n, 0 : N, 1] = +(D[n, c] * D[n, c]);\n"
        " Y = D / sqrt(V / C + 1e-5) * G + B; }",
        "X=f64[4,6] G=f64[6] B=f64[6]",
        lambda X, G, B: (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5) * G + B,
    ),
    TileCase(
        "attention",
        "function attention(Q[N, D], K[M, D], V[M, E]) -> (O) {\n"
        " S[n, m : N, M] = +(Q[n, d] * K[m, d]); T = S / sqrt(D); X[n, 0 : N, 1] = >(T[n, m]); P = exp(T - X);\n"
        " Z[n, 0 : N, 1] = +(P[n, m]); W = P / Z; O[n, e : N, E] = +(W[n, m] * V[m, e]); }",
        "Q=f32[4,8] K=f32[5,8] V=f32[5,3]",
        lambda Q, K, V: softmax((Q @ K.T) / f32(8**0.5)) @ V,
    ),
    TileCase(
        "perceptron",
        "function digits(X[N, P], W1[P, H], B1[H], W2[H, C], B2[C]) -> (Z, LABEL) {\n"
        " A[n, h : N, H] = +(X[n, p] * W1[p, h]); R = relu(A + B1); S[n, c : N, C] = +(R[n, h] * W2[h, c]);\n"
        " Z = S + B2; BEST[n, 0 : N, 1] = >(Z[n, c]); PLACE = Z == BEST ? index(Z, 1) : C; LABEL[n : N] = <(PLACE[n, c]); }",
        "X=f32[5,6] W1=f32[6,7] B1=f32[7] W2=f32[7,4] B2=f32[4]",
        lambda X, W1, B1, W2, B2: (z := relu(X @ W1 + B1) @ W2 + B2, z.argmax(1).astype(np.int32)),
    ),
    TileCase(
        "moments",
        "function (X[N]) -> (MEAN, VAR) { S[] = +(X[i]); MEAN = S / N; D = X - MEAN; V[] = +(D[i] * D[i]); VAR = V / N; }",
        "X=f64[9]",
        lambda X: (np.asarray(X.mean()), np.asarray(X.var())),
    ),
    TileCase(
        "beside",
        "function (A[M, N], B[M, P], C[M, Q]) -> (R) {\n"
        " T[i, j : M, N + P + Q] = =(A[i, j]); U[i, j + N : M, N + P + Q] = =(B[i, j]);\n"
        " V[i, j + N + P : M, N + P + Q] = =(C[i, j]); R = relu(T + U + V); }",
        "A=f32[3,4] B=f32[3,2] C=f32[3,17]",
        lambda A, B, C: relu(np.concatenate((A, B, C), 1)),
    ),
    TileCase(
        "turned_pairs",
        "function (X[S, D], C[S, 5], N[S, 5]) -> (R) {\n"
        " A[s, d : S, 5] = =(X[s, d]); B[s, d : S, 5] = =(X[s, d + 5]); L = A * C - B * N; H = B * C + A * N;\n"
        " T[s, d : S, D] = =(L[s, d]); U[s, d + 5 : S, D] = =(H[s, d]); R = T + U; }",
        "X=f32[6,10] C=f32[6,5] N=f32[6,5]",
        lambda X, C, N: np.concatenate((X[:, :5] * C - X[:, 5:] * N, X[:, 5:] * C + X[:, :5] * N), 1),
    ),
    TileCase(
        "border_of_a_picture",
        "function (X[H, W]) -> (R) { P[y + 1, x + 2 : H + 2, W + 4] = =(X[y, x]); R = exp(P) + P; }",
        "X=f32[4,5]",
        lambda X: (p := np.pad(X, ((1, 1), (2, 2)))) + np.exp(p),
    ),
    TileCase(
        "distances",
        "function (A[M, K], B[N, K]) -> (D) { C = -B; E[i, j, k : M, N, K] = =(A[i, k] + C[j, k]);"
        " S[i, j : M, N] = +(E[i, j, k] * E[i, j, k]); D = sqrt(S); }",
        "A=f64[3,4] B=f64[5,4]",
        lambda A, B: np.sqrt(((A[:, None] - B) ** 2).sum(2)),
    ),
    TileCase(
        "matrix_power",
        "function (A[N, N]) -> (C) { B[i, j : N, N] = +(A[i, k] * A[k, j]); C[i, j : N, N] = +(B[i, k] * A[k, j]); }",
        "A=f64[4,4]",
        lambda A: A @ A @ A,
    ),
    TileCase(
        "dead_statements",
        "function (A[N]) -> (B) { X = A * 3; Y[] = +(X[i]); B = A + 1; Z = B + Y; }",
        "A=f32[4]",
        lambda A: A + 1,
    ),
    TileCase(
        "fake_quantised",
        "function (X[N], S) -> (Y) { Q = as_int(max(min(round(X / S), 127), -128), 8); Y = Q * S; }",
        "X=f32[9] S=f32[]",
        lambda X, S: np.clip(np.rint(X / S), -128, 127).astype(np.int8) * S,
        given={"S": 0.01},
    ),
    TileCase(
        "gelu",
        "function (X) -> (Y) { Y = 0.5 * X * (1 + erf(X / sqrt(2))); }",
        "X=f64[9]",
        lambda X: 0.5 * X * (1 + erf(X / np.sqrt(2))),
    ),
    TileCase(
        "literal_dimensions",
        "function (I[H, 3], L[3]) -> (Y) { Y[y : H] = +(I[y, c] * L[c]); }",
        "I=f32[5,3] L=f32[3]",
        lambda I, L: I @ L,
    ),
    TileCase(
        "comments",
        "// a comment\nfunction /* named */ f(A[N]) -> (B) {\n  /* several\n lines */ B = A; // end\n}",
        "A=f32[3]",
        lambda A: A,
    ),
)
