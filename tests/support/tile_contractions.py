"""The contractions of the Tile corpus."""

# A program and its reference read best on a line each; tensors are called I as everywhere.
# ruff: noqa: E501, E741

from __future__ import annotations

import numpy as np

from tests.support.tile_cases import TileCase, bf16, conv2d, f16, f32, f64, relu, taps

CONTRACTIONS = (
    TileCase(
        "matmul",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }",
        "A=f32[7,5] B=f32[5,6]",
        lambda A, B: A @ B,
    ),
    TileCase(
        "matmul_bias_relu",
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n : M, N] = +(A[m, k] * B[k, n]); R = relu(C + D); }",
        "A=f32[7,5] B=f32[5,6] D=f32[6]",
        lambda A, B, D: relu(A @ B + D),
    ),
    TileCase(
        "matmul_transposed",
        "function (A[K, M], B[N, K]) -> (C) { C[m, n : M, N] = +(A[k, m] * B[n, k]); }",
        "A=f64[5,7] B=f64[6,5]",
        lambda A, B: A.T @ B.T,
    ),
    TileCase(
        "matmul_batched",
        "function (A[B, M, K], C[B, K, N]) -> (R) { R[b, m, n : B, M, N] = +(A[b, m, k] * C[b, k, n]); }",
        "A=f32[3,4,5] C=f32[3,5,2]",
        lambda A, C: A @ C,
    ),
    TileCase(
        "matmul_f16",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }",
        "A=f16[4,64] B=f16[64,3]",
        lambda A, B: (A.astype(f32) @ B.astype(f32)).astype(f16),
    ),
    TileCase(
        "matmul_bf16",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }",
        "A=bf16[4,64] B=bf16[64,3]",
        lambda A, B: (A.astype(f32) @ B.astype(f32)).astype(bf16),
    ),
    TileCase(
        "matmul_bf16_to_f32",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N]: f32 = +(A[m, k] * B[k, n]); }",
        "A=bf16[4,9] B=bf16[9,3]",
        lambda A, B: A.astype(f32) @ B.astype(f32),
    ),
    TileCase(
        "matmul_i8",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }",
        "A=i8[4,50] B=i8[50,3]",
        lambda A, B: A.astype(np.int32) @ B.astype(np.int32),
        integers=(-128, 128),
    ),
    TileCase(
        "matmul_u8_i8",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }",
        "A=u8[4,50] B=i8[50,3]",
        lambda A, B: A.astype(np.int32) @ B.astype(np.int32),
        integers=(-128, 128),
    ),
    TileCase(
        "matmul_i8_narrowed",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N]: i8 = +(A[m, k] * B[k, n]); }",
        "A=i8[4,50] B=i8[50,3]",
        lambda A, B: (A.astype(np.int32) @ B.astype(np.int32)).astype(np.int8),
        integers=(-128, 128),
    ),
    TileCase(
        "matmul_accumulate_f64",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]) accumulate f64; }",
        "A=f32[4,30] B=f32[30,3]",
        lambda A, B: (A.astype(f64) @ B.astype(f64)).astype(f32),
    ),
    TileCase(
        "mixed_operands",
        "function (A[N], B[N]) -> (C) { C[] = +(A[i] * B[i]); }",
        "A=i32[9] B=f32[9]",
        lambda A, B: np.asarray((A.astype(f64) * B).sum()),
    ),
    TileCase(
        "dot",
        "function (A[N], B[N]) -> (C) { C[] = +(A[i] * B[i]); }",
        "A=f32[19] B=f32[19]",
        lambda A, B: np.asarray(A @ B),
    ),
    TileCase(
        "outer",
        "function (A[M], B[N]) -> (C) { C[i, j : M, N] = =(A[i] * B[j]); }",
        "A=f32[4] B=f32[3]",
        lambda A, B: np.outer(A, B),
    ),
    TileCase(
        "outer_sum",
        "function (A[M], B[N]) -> (C) { C[i, j : M, N] = =(A[i] + B[j]); }",
        "A=i32[4] B=i32[3]",
        lambda A, B: A[:, None] + B,
    ),
    TileCase(
        "triple_product",
        "function (X[I], W[I, J], Y[J]) -> (Z) { Z[] = +(X[i] * W[i, j] * Y[j]); }",
        "X=f64[4] W=f64[4,5] Y=f64[5]",
        lambda X, W, Y: np.asarray(X @ W @ Y),
    ),
    TileCase(
        "triple_sum",
        "function (A[N], B[N], C[N]) -> (R) { R[i : N] = =(A[i] + B[i] + C[N - 1 - i]); }",
        "A=i32[4] B=i32[4] C=i32[4]",
        lambda A, B, C: A + B + C[::-1],
    ),
    TileCase(
        "sum_all",
        "function (A[M, N]) -> (S) { S[] = +(A[i, j]); }",
        "A=f64[4,5]",
        lambda A: np.asarray(A.sum()),
    ),
    TileCase(
        "row_sums", "function (A[M, N]) -> (S) { S[i : M] = +(A[i, j]); }", "A=f32[4,5]", lambda A: A.sum(1)
    ),
    TileCase(
        "column_sums_i16",
        "function (A[M, N]) -> (S) { S[j : N] = +(A[i, j]); }",
        "A=i16[4,5]",
        lambda A: A.sum(0, dtype=np.int16),
        integers=(-20000, 20000),
    ),
    TileCase(
        "row_max",
        "function (A[M, N]) -> (S) { S[i : M] = >(A[i, j]); }",
        "A=f32[4,5]",
        lambda A: A.max(1),
        floats=(-5.0, -1.0),
    ),
    TileCase(
        "column_min_i8",
        "function (A[M, N]) -> (S) { S[j : N] = <(A[i, j]); }",
        "A=i8[4,5]",
        lambda A: A.min(0),
    ),
    TileCase(
        "max_f16", "function (A[M, N]) -> (S) { S[i : M] = >(A[i, j]); }", "A=f16[4,5]", lambda A: A.max(1)
    ),
    TileCase(
        "row_products",
        "function (A[M, N]) -> (S) { S[i : M] = *(A[i, j]); }",
        "A=f64[4,5]",
        lambda A: A.prod(1),
    ),
    TileCase(
        "any_and_all",
        "function (A[M, N]) -> (S, T) { S[i : M] = >(A[i, j]); T[i : M] = <(A[i, j]); }",
        "A=bool[6,3]",
        lambda A: (A.any(1), A.all(1)),
    ),
    TileCase(
        "count_true",
        "function (A[M, N]) -> (S) { S[i : M] = +(A[i, j]); }",
        "A=bool[4,50]",
        lambda A: A.sum(1, dtype=np.int32),
    ),
    TileCase(
        "count_equal",
        "function (A[M], B[N]) -> (S) { S[i : M] = +(A[i] == B[j]); }",
        "A=i8[5] B=i16[300]",
        lambda A, B: (A[:, None] == B).sum(1, dtype=np.int32),
        integers=(0, 2),
    ),
    TileCase(
        "equal_pairs",
        "function (A[M], B[N]) -> (S) { S[i, j : M, N] = =(A[i] == B[j]); }",
        "A=i32[5] B=i32[6]",
        lambda A, B: A[:, None] == B,
        integers=(0, 3),
    ),
    TileCase(
        "one_hot_product",
        "function (L[N], K[C], V[C]) -> (R) { R[n : N] = +(L[n] == K[c] ? V[c]); }",
        "L=i32[9] K=i32[4] V=f32[4]",
        lambda L, K, V: np.where(L[:, None] == K, V, f32(0)).sum(1),
        integers=(0, 4),
        given={"K": [0, 1, 2, 3]},
    ),
    TileCase(
        "max_where_equal",
        "function (L[N], K[C], V[N]) -> (R) { R[c : C] = >(L[n] == K[c] ? V[n]); }",
        "L=i32[9] K=i32[4] V=f32[9]",
        lambda L, K, V: np.where(K[:, None] == L, V, f32(0)).max(1),
        integers=(0, 4),
    ),
    TileCase(
        "transpose", "function (A[M, N]) -> (B) { B[j, i : N, M] = =(A[i, j]); }", "A=i8[4,5]", lambda A: A.T
    ),
    TileCase(
        "permute",
        "function (A[L, M, N]) -> (B) { B[k, i, j : N, L, M] = =(A[i, j, k]); }",
        "A=f32[2,3,4]",
        lambda A: A.transpose(2, 0, 1),
    ),
    TileCase(
        "diagonal", "function (A[N, N]) -> (B) { B[i : N] = =(A[i, i]); }", "A=f32[5,5]", lambda A: np.diag(A)
    ),
    TileCase(
        "trace",
        "function (A[N, N]) -> (B) { B[] = +(A[i, i]); }",
        "A=f32[5,5]",
        lambda A: np.asarray(np.trace(A)),
    ),
    TileCase(
        "diagonal_matrix",
        "function (A[N]) -> (B) { B[i, i : N, N] = =(A[i]); }",
        "A=f32[5]",
        lambda A: np.diag(A),
    ),
    TileCase("flip", "function (A[N]) -> (B) { B[i : N] = =(A[N - 1 - i]); }", "A=i32[6]", lambda A: A[::-1]),
    TileCase(
        "slice",
        "function (A[M, N]) -> (B) { B[i, j : M - 2, N / 2] = =(A[i + 1, 2j + 1]); }",
        "A=i32[6,7]",
        lambda A: A[1:-1, 1::2],
    ),
    TileCase(
        "shift",
        "function (A[N]) -> (B) { B[i : N] = =(A[i - 2]); }",
        "A=i32[6]",
        lambda A: np.concatenate([[0, 0], A[:-2]]).astype(np.int32),
    ),
    TileCase(
        "shift_with_default",
        "function (A[N], D[N]) -> (B) { B[i : N] = =(A[i - 2]) default D; }",
        "A=i32[6] D=i32[6]",
        lambda A, D: np.concatenate([D[:2], A[:-2]]),
    ),
    TileCase(
        "max_with_default",
        "function (A[N]) -> (B) { B[i : N] = >(A[i - 2 + k]), k < 2 default -100; }",
        "A=i32[6]",
        lambda A: np.asarray([-100, A[0], *np.maximum(A[:-2], A[1:-1])], np.int32),
    ),
    TileCase(
        "init_sum",
        "function (A[M, N], B[M]) -> (S) { S[i : M] = +(A[i, j]) init B; }",
        "A=f32[4,5] B=f32[4]",
        lambda A, B: A.sum(1) + B,
    ),
    TileCase(
        "init_max",
        "function (A[M, N]) -> (S) { S[i : M + 1] = >(A[i, j]) init 0; }",
        "A=f32[4,5]",
        lambda A: np.append(np.maximum(A.max(1), 0), f32(0)),
    ),
    TileCase(
        "init_f16",
        "function (A[M, N], B) -> (S) { S[i : M] = +(A[i, j]) init B; }",
        "A=f16[4,50] B=f16[]",
        lambda A, B: (A.astype(f32).sum(1) + B.astype(f32)).astype(f16),
    ),
    TileCase(
        "concatenate",
        "function (A[M], B[N]) -> (C) { L[i : M + N] = =(A[i]); C[i + M : M + N] = =(B[i]) default L; }",
        "A=f32[3] B=f32[4]",
        lambda A, B: np.concatenate([A, B]),
    ),
    TileCase(
        "repeat",
        "function (A[N]) -> (B) { B[3i + k : 3 * N] = =(A[i]), k < 3; }",
        "A=f32[4]",
        lambda A: np.repeat(A, 3),
    ),
    TileCase(
        "tile_vector",
        "function (A[N]) -> (B) { B[N * k + i : 3 * N] = =(A[i]), k < 3; }",
        "A=f32[4]",
        lambda A: np.tile(A, 3),
    ),
    TileCase(
        "stride_with_holes",
        "function (A[N]) -> (B) { B[2i + 1 : 2 * N + 1] = =(A[i]); }",
        "A=f32[4]",
        lambda A: np.append(np.stack([0 * A, A], 1), f32(0)),
    ),
    TileCase(
        "exact_division",
        "function (I[N]) -> (O) { O[i : 6] = +(I[(i - 1) / 2]); }",
        "I=f32[3]",
        lambda I: np.stack([0 * I, I], 1).reshape(-1),
    ),
    TileCase(
        "exact_division_kernel",
        "function (I[N], K[M]) -> (O) { O[i : 5] = +(I[(i - j + 1) / 2] * K[j]); }",
        "I=f32[3] K=f32[3]",
        lambda I, K: np.convolve(np.append(np.stack([I, 0 * I], 1).reshape(-1)[:5], f32(0)), K)[1:6],
    ),
    TileCase(
        "cumulative_sum",
        "function (A[N]) -> (C) { C[i : N] = +(A[k]), i - k < N; }",
        "A=f64[7]",
        lambda A: np.cumsum(A),
    ),
    TileCase(
        "cumulative_product",
        "function (A[N]) -> (C) { C[i : N] = *(A[i - k]), k < N; }",
        "A=f64[7]",
        lambda A: np.cumprod(A),
    ),
    TileCase(
        "triangle",
        "function (A[N, N]) -> (C) { C[i, j : N, N] = =(A[i, j]), i - j < N; }",
        "A=f64[5,5]",
        lambda A: np.tril(A),
    ),
    TileCase(
        "triangular_product",
        "function (A[N, N], X[N]) -> (Y) { Y[i : N] = +(A[i, j] * X[j]), j < i; }",
        "A=f64[5,5] X=f64[5]",
        lambda A, X: np.tril(A, -1) @ X,
    ),
    TileCase(
        "convolution_1d",
        "function (I[N], K[R]) -> (O) { O[x : N - R + 1] = +(I[x + r] * K[r]); }",
        "I=f32[12] K=f32[3]",
        lambda I, K: np.correlate(I, K),
    ),
    TileCase(
        "convolution",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) {"
        " O[y, x, k : H, W, K] = +(I[y + r - 1, x + s - 1, c] * F[r, s, c, k]); }",
        "I=f32[6,5,3] F=f32[3,3,3,4]",
        lambda I, F: conv2d(I, F, pad=1),
    ),
    TileCase(
        "convolution_strided",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) {"
        " O[y, x, k : (H + 1) / 2, (W + 1) / 2, K] = +(I[2y + r - 1, 2x + s - 1, c] * F[r, s, c, k]); }",
        "I=f32[6,5,3] F=f32[3,3,3,4]",
        lambda I, F: conv2d(I, F, pad=1, stride=2),
    ),
    TileCase(
        "convolution_dilated",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) {"
        " O[y, x, k : H - 4, W - 4, K] = +(I[y + 2r, x + 2s, c] * F[r, s, c, k]); }",
        "I=f32[7,6,2] F=f32[3,3,2,3]",
        lambda I, F: conv2d(I, F, step=2),
    ),
    TileCase(
        "convolution_i8",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) {"
        " O[y, x, k : H, W, K]: i8 = +(I[y + r - 1, x + s - 1, c] * F[r, s, c, k]); }",
        "I=i8[4,5,2] F=i8[3,3,2,3]",
        lambda I, F: conv2d(I.astype(np.int32), F.astype(np.int32), pad=1).astype(np.int8),
        integers=(-128, 128),
    ),
    TileCase(
        "depthwise",
        "function (I[H, W, C], F[R, S, C]) -> (O) {"
        " O[y, x, c : H - R + 1, W - S + 1, C] = +(I[y + r, x + s, c] * F[r, s, c]); }",
        "I=f32[5,6,3] F=f32[2,3,3]",
        lambda I, F: np.stack(
            [conv2d(I[:, :, c : c + 1], F[:, :, c : c + 1, None])[:, :, 0] for c in range(3)], 2
        ),
    ),
    TileCase(
        "grouped",
        "function (I[X, G, C], F[R, G, C, K]) -> (O) {"
        " O[x, g, k : X - R + 1, G, K] = +(I[x + r, g, c] * F[r, g, c, k]); }",
        "I=f32[6,2,3] F=f32[2,2,3,4]",
        lambda I, F: sum(np.einsum("xgc,gck->xgk", I[r : r + 5], F[r]) for r in range(2)),
    ),
    TileCase(
        "transposed_convolution",
        "function (I[N, C], F[R, C, K]) -> (O) {"
        " O[x, k : 2 * N + 1, K] = +(I[(x - r) / 2, c] * F[r, c, k]); }",
        "I=f32[4,2] F=f32[3,2,3]",
        lambda I, F: np.stack(
            [
                sum(
                    (I[(x - r) // 2] @ F[r] for r in range(3) if (x - r) % 2 == 0 and 0 <= (x - r) // 2 < 4),
                    np.zeros(3, f32),
                )
                for x in range(9)
            ]
        ),
    ),
    TileCase(
        "max_pool",
        "function (I[H, W]) -> (O) { O[y, x : H / 2, W / 2] = >(I[2y + i, 2x + j]), i < 2, j < 2; }",
        "I=f32[6,8]",
        lambda I: I.reshape(3, 2, 4, 2).max((1, 3)),
    ),
    TileCase(
        "max_pool_ragged",
        "function (I[N]) -> (O) { O[x : (N + 1) / 2] = >(I[2x + i]), i < 2; }",
        "I=f32[7]",
        lambda I: np.asarray([*I[:6].reshape(3, 2).max(1), I[6]]),
        floats=(-3.0, -1.0),
    ),
    TileCase(
        "average_pool",
        "function (I[N]) -> (O) { S[x : N - 2] = +(I[x + i]), i < 3; O = S / 3; }",
        "I=f32[7]",
        lambda I: (I[:-2] + I[1:-1] + I[2:]) / f32(3),
    ),
    TileCase(
        "moving_window",
        "function (I[N]) -> (O) { O[x, i : N - 2, 3] = =(I[x + i]); }",
        "I=f32[7]",
        lambda I: taps(I, 0, 5, 3),
    ),
    TileCase(
        "padded_window",
        "function (I[N]) -> (O) { O[x, i : N, 3] = =(I[x + i - 1]) no_reduce; }",
        "I=f32[7]",
        lambda I: taps(I, 1, 7, 3),
    ),
    TileCase(
        "upsample",
        "function (I[H, W]) -> (O) { O[2y + i, 2x + j : 2 * H, 2 * W] = =(I[y, x]), i < 2, j < 2; }",
        "I=f32[3,4]",
        lambda I: I.repeat(2, 0).repeat(2, 1),
    ),
    TileCase(
        "toeplitz",
        "function (K[R], N0[N]) -> (T) { T[i, j : N, N] = =(K[i - j + 1]); }",
        "K=f32[3] N0=f32[5]",
        lambda K, N0: np.asarray(sum(np.diag(np.full(5 - abs(d), K[1 - d]), d) for d in (-1, 0, 1)), f32),
    ),
    TileCase(
        "vandermonde",
        "function (X[N], P[M]) -> (V) { E[i, j, k : N, M, M] = =(X[i]), j - k - 1 < M default 1;"
        " V[i, j : N, M] = *(E[i, j, k]); }",
        "X=f64[4] P=f64[3]",
        lambda X, P: np.vander(X, 3, increasing=True),
    ),
    TileCase(
        "negative_indexes",
        "function (A[N], B[N]) -> (C) { C[i + 3 : 6] = +(A[i + 2] * B[-i]); }",
        "A=f32[4] B=f32[4]",
        lambda A, B: np.asarray([0, *(A[i + 2] * B[-i] for i in (-2, -1, 0)), 0, 0], f32),
    ),
    TileCase(
        "histogram",
        "function (A[N], Bins[B]) -> (H) { H[b : B] = +(A[n] == Bins[b]); }",
        "A=u8[50] Bins=u8[5]",
        lambda A, Bins: np.bincount(A, minlength=5).astype(np.int32),
        integers=(0, 5),
        given={"Bins": range(5)},
    ),
    TileCase(
        "axis_of_size_1",
        "function (A[M, N], B[1, N]) -> (C) { C[m, n : M, N] = =(A[m, n] * B[0, n]); }",
        "A=f32[4,3] B=f32[1,3]",
        lambda A, B: A * B,
    ),
    TileCase(
        "quadratic_form",
        "function (A[N, N], X[N]) -> (Q) { Q[] = +(X[i] * A[i, j] * X[j]); }",
        "A=f64[4,4] X=f64[4]",
        lambda A, X: np.asarray(X @ A @ X),
    ),
    TileCase(
        "window_by_difference",
        "function (X[N], K[T]) -> (R) { R[i : N] = +(X[j] * K[i - j]); }",
        "X=f64[37] K=f64[4]",
        lambda X, K: np.convolve(X, K)[:37],
    ),
    TileCase(
        "convolution_transposed_by_exact_division",
        "function (I[N], K[T]) -> (R) { R[i : 2*N] = +(I[(i - t + 1)/2] * K[t]); }",
        "I=f64[29] K=f64[4]",
        lambda I, K: np.convolve(np.stack([I, 0 * I], 1).ravel(), K)[1:59],
    ),
    TileCase(
        "chain_of_matrices",
        "function (A[I, J], B[J, K], C[K, R]) -> (O) { O[i, r : I, R] = +(A[i, j] * B[j, k] * C[k, r]); }",
        "A=f32[21,17] B=f32[17,5] C=f32[5,19]",
        lambda A, B, C: A @ B @ C,
    ),
    TileCase(
        "tensor_by_matrices",
        "function (T[I, J, K], A[I, P], B[J, Q], C[K, R]) -> (G) {"
        " G[p, q, r : P, Q, R] = +(T[i, j, k] * A[i, p] * B[j, q] * C[k, r]); }",
        "T=f64[9,8,7] A=f64[9,3] B=f64[8,4] C=f64[7,5]",
        lambda T, A, B, C: np.einsum("ijk,ip,jq,kr->pqr", T, A, B, C),
    ),
    TileCase(
        "bilinear_form_i8",
        "function (X[I], W[I, J], Y[J]) -> (S) { S[] = +(X[i] * W[i, j] * Y[j]); }",
        "X=i8[33] W=i8[33,21] Y=i8[21]",
        lambda X, W, Y: (X.astype(np.int32) @ W.astype(np.int32) @ Y.astype(np.int32))[...],
        integers=(-128, 128),
    ),
    TileCase(
        "triangular_chain",
        "function (A[N, N], B[N, N], C[N, N]) -> (O) {"
        " O[i, r : N, N] = +(A[i, j] * B[j, k] * C[k, r]), i - j < N, r - k < N; }",
        "A=f32[13,13] B=f32[13,13] C=f32[13,13]",
        lambda A, B, C: np.tril(A) @ B @ np.triu(C),
    ),
    TileCase(
        "band_of_a_matrix",
        "function (A[N, N]) -> (S, B) {"
        " S[i : N] = +(A[i, j]), i - j + 1 < 4; B[i, j : N, N] = =(A[i, j]), i - j < 2; }",
        "A=i32[31,31]",
        lambda A: (
            np.asarray(np.sum(np.triu(np.tril(A, 1), -2), axis=1, dtype=np.int32)),
            np.triu(np.tril(A), -1),
        ),
    ),
)
