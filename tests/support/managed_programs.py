"""Tile programs for machines that manage their memories: networks' layers, windows of all kinds, sums across
tiles, transposes and reshapes, sizes of 1 and 0 and primes, types, constants, and more than a memory holds.
"""

# A program reads best on a line.
# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass

from stripe.diag import Source
from stripe.ir import Program
from stripec.driver import read_program
from tests.support.golden import input_types


@dataclass(frozen=True)
class ManagedCase:
    """A program, the types of its inputs, bounds of their values, and which of them are constants."""

    name: str
    text: str
    shapes: str
    integers: tuple[int, int] = (-4, 5)
    floats: tuple[float, float] = (-2.0, 2.0)
    const: tuple[str, ...] = ()

    def program(self) -> Program:
        source = read_program(Source(f"{self.name}.tile", self.text))
        return source.lower(input_types({"shapes": self.shapes}), self.const)


MANAGED: tuple[ManagedCase, ...] = (
    ManagedCase(
        "attention",
        "function (Q[T, D], K[S, D], V[S, D]) -> (O) { L[t, s:T, S] = +(Q[t, d]*K[s, d]); X = L/8; M[t, 0:T, 1] = >(X[t, s]); E = exp(X-M); Z[t, 0:T, 1] = +(E[t, s]); P = E/Z; O[t, d:T, D] = +(P[t, s]*V[s, d]); }",
        "Q=f32[17,16] K=f32[23,16] V=f32[23,16]",
    ),
    ManagedCase(
        "mha",
        "function (Q[H, T, D], K[H, S, D], V[H, S, D]) -> (O) { L[h, t, s:H, T, S] = +(Q[h, t, d]*K[h, s, d]); M[h, t, 0:H, T, 1] = >(L[h, t, s]); E = exp(L-M); Z[h, t, 0:H, T, 1] = +(E[h, t, s]); P = E/Z; O[h, t, d:H, T, D] = +(P[h, t, s]*V[h, s, d]); }",
        "Q=f32[3,18,20] K=f32[3,35,20] V=f32[3,35,20]",
    ),
    ManagedCase(
        "causal",
        "function (Q[T, D], K[T, D], V[T, D]) -> (O) { L[t, s:T, T] = +(Q[t, d]*K[s, d]), t-s<T default -1e9; M[t, 0:T, 1] = >(L[t, s]); E = exp(L-M); Z[t, 0:T, 1] = +(E[t, s]); P = E/Z; O[t, d:T, D] = +(P[t, s]*V[s, d]); }",
        "Q=f32[19,8] K=f32[19,8] V=f32[19,8]",
    ),
    ManagedCase(
        "layer_norm",
        "function (X[N, C], G[C], B[C]) -> (R) { S[n, 0:N, 1] = +(X[n, c]); M = S/C; D = X-M; V[n, 0:N, 1] = +(D[n, c]*D[n, c]); R = D/sqrt(V/C+0.00001)*G+B; }",
        "X=f32[13,37] G=f32[37] B=f32[37]",
    ),
    ManagedCase(
        "layer_norm_big",
        "function (X[N, C], G[C], B[C]) -> (R) { S[n, 0:N, 1] = +(X[n, c]); M = S/C; D = X-M; V[n, 0:N, 1] = +(D[n, c]*D[n, c]); R = D/sqrt(V/C+0.00001)*G+B; }",
        "X=f32[5,40000] G=f32[40000] B=f32[40000]",
    ),
    ManagedCase(
        "softmax_big",
        "function (X[N, C]) -> (R) { M[n, 0:N, 1] = >(X[n, c]); E = exp(X-M); S[n, 0:N, 1] = +(E[n, c]); R = E/S; }",
        "X=f32[3,100003]",
    ),
    ManagedCase(
        "softmax_tall",
        "function (X[N, C]) -> (R) { M[n, 0:N, 1] = >(X[n, c]); E = exp(X-M); S[n, 0:N, 1] = +(E[n, c]); R = E/S; }",
        "X=f32[30011,3]",
    ),
    ManagedCase(
        "lstm",
        "function (X[B, I], H[B, N], C[B, N], WI[I, N], WF[I, N], WO[I, N], WG[I, N], UI[N, N], UF[N, N], UO[N, N], UG[N, N]) -> (HN, CN) { A1[b, n:B, N] = +(X[b, i]*WI[i, n]); A2[b, n:B, N] = +(H[b, i]*UI[i, n]); F1[b, n:B, N] = +(X[b, i]*WF[i, n]); F2[b, n:B, N] = +(H[b, i]*UF[i, n]); O1[b, n:B, N] = +(X[b, i]*WO[i, n]); O2[b, n:B, N] = +(H[b, i]*UO[i, n]); G1[b, n:B, N] = +(X[b, i]*WG[i, n]); G2[b, n:B, N] = +(H[b, i]*UG[i, n]); IG = sigmoid(A1+A2); FG = sigmoid(F1+F2); OG = sigmoid(O1+O2); GG = tanh(G1+G2); CN = FG*C+IG*GG; HN = OG*tanh(CN); }",
        "X=f32[3,7] H=f32[3,18] C=f32[3,18] WI=f32[7,18] WF=f32[7,18] WO=f32[7,18] WG=f32[7,18] UI=f32[18,18] UF=f32[18,18] UO=f32[18,18] UG=f32[18,18]",
    ),
    ManagedCase(
        "gru",
        "function (X[B, I], H[B, N], WZ[I, N], UZ[N, N], WR[I, N], UR[N, N], WH[I, N], UH[N, N]) -> (HN) { A[b, n:B, N] = +(X[b, i]*WZ[i, n]); B1[b, n:B, N] = +(H[b, i]*UZ[i, n]); Z = sigmoid(A+B1); A2[b, n:B, N] = +(X[b, i]*WR[i, n]); B2[b, n:B, N] = +(H[b, i]*UR[i, n]); R = sigmoid(A2+B2); RH = R*H; A3[b, n:B, N] = +(X[b, i]*WH[i, n]); B3[b, n:B, N] = +(RH[b, i]*UH[i, n]); G = tanh(A3+B3); HN = (1-Z)*H+Z*G; }",
        "X=f32[2,5] H=f32[2,11] WZ=f32[5,11] UZ=f32[11,11] WR=f32[5,11] UR=f32[11,11] WH=f32[5,11] UH=f32[11,11]",
    ),
    ManagedCase(
        "mlp3",
        "function (X[B, I], A[I, N], C[N, N], D[N, O], E[N]) -> (Z) { H1[b, n:B, N] = +(X[b, i]*A[i, n]); R1 = relu(H1+E); H2[b, n:B, N] = +(R1[b, i]*C[i, n]); R2 = relu(H2+E); Z[b, o:B, O] = +(R2[b, i]*D[i, o]); }",
        "X=f32[33,20] A=f32[20,47] C=f32[47,47] D=f32[47,10] E=f32[47]",
    ),
    ManagedCase(
        "depthwise",
        "function (I[H, W, C], F[R, S, C]) -> (O) { O[y, x, c:H, W, C] = +(I[y+r-1, x+s-1, c]*F[r, s, c]); }",
        "I=f32[13,11,17] F=f32[3,3,17]",
    ),
    ManagedCase(
        "depthwise_mult",
        "function (I[H, W, C], F[R, S, C, M]) -> (O) { O[y, x, c, m:H, W, C, M] = +(I[y+r-1, x+s-1, c]*F[r, s, c, m]); }",
        "I=f32[9,7,5] F=f32[3,3,5,2]",
    ),
    ManagedCase(
        "strided2",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) { O[y, x, k:(H+1)/2, (W+1)/2, K] = +(I[2*y+r-1, 2*x+s-1, c]*F[r, s, c, k]); }",
        "I=f32[15,17,5] F=f32[3,3,5,19]",
    ),
    ManagedCase(
        "strided3",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) { O[y, x, k:(H-5)/3+1, (W-5)/3+1, K] = +(I[3*y+r, 3*x+s, c]*F[r, s, c, k]); }",
        "I=f32[23,20,3] F=f32[5,5,3,8]",
    ),
    ManagedCase(
        "dilated",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) { O[y, x, k:H, W, K] = +(I[y+2*r-2, x+2*s-2, c]*F[r, s, c, k]); }",
        "I=f32[14,13,4] F=f32[3,3,4,16]",
    ),
    ManagedCase(
        "transposed2",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) { O[y, x, k:2*H, 2*W, K] = +(I[(y-r+1)/2, (x-s+1)/2, c]*F[r, s, c, k]); }",
        "I=f32[7,6,4] F=f32[3,3,4,5]",
    ),
    ManagedCase(
        "transposed_scatter",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) { O[2*y+r, 2*x+s, k:2*H+1, 2*W+1, K] = +(I[y, x, c]*F[r, s, c, k]); }",
        "I=f32[7,6,4] F=f32[3,3,4,5]",
    ),
    ManagedCase(
        "transposed1_big",
        "function (I[N], K[T]) -> (R) { R[i:2*N] = +(I[(i-t+1)/2]*K[t]); }",
        "I=f32[40001] K=f32[4]",
    ),
    ManagedCase(
        "conv1x1",
        "function (I[H, W, C], F[C, K]) -> (O) { O[y, x, k:H, W, K] = +(I[y, x, c]*F[c, k]); }",
        "I=f32[14,14,33] F=f32[33,17]",
    ),
    ManagedCase(
        "conv1x1s2",
        "function (I[H, W, C], F[C, K]) -> (O) { O[y, x, k:(H+1)/2, (W+1)/2, K] = +(I[2*y, 2*x, c]*F[c, k]); }",
        "I=f32[14,13,33] F=f32[33,17]",
    ),
    ManagedCase(
        "conv1d",
        "function (I[N, C], F[T, C, K]) -> (O) { O[n, k:N, K] = +(I[n+t-2, c]*F[t, c, k]); }",
        "I=f32[101,3] F=f32[5,3,7]",
    ),
    ManagedCase(
        "conv3d",
        "function (I[D, H, W, C], F[T, R, S, C, K]) -> (O) { O[z, y, x, k:D, H, W, K] = +(I[z+t-1, y+r-1, x+s-1, c]*F[t, r, s, c, k]); }",
        "I=f32[5,6,7,3] F=f32[3,3,3,3,4]",
    ),
    ManagedCase(
        "group_conv",
        "function (I[H, W, G, C], F[R, S, G, C, K]) -> (O) { O[y, x, g, k:H, W, G, K] = +(I[y+r-1, x+s-1, g, c]*F[r, s, g, c, k]); }",
        "I=f32[8,9,3,4] F=f32[3,3,3,4,6]",
    ),
    ManagedCase(
        "nchw",
        "function (I[N, C, H, W], F[K, C, R, S]) -> (O) { O[n, k, y, x:N, K, H, W] = +(I[n, c, y+r-1, x+s-1]*F[k, c, r, s]); }",
        "I=f32[2,5,9,10] F=f32[7,5,3,3]",
    ),
    ManagedCase(
        "conv_conv",
        "function (I[H, W, C], F[R, S, C, K], G[R, S, K, L]) -> (P) { O[y, x, k:H, W, K] = +(I[y+r-1, x+s-1, c]*F[r, s, c, k]); A = relu(O); P[y, x, k:H, W, L] = +(A[y+r-1, x+s-1, c]*G[r, s, c, k]); }",
        "I=f32[21,20,3] F=f32[3,3,3,16] G=f32[3,3,16,8]",
    ),
    ManagedCase(
        "residual",
        "function (I[H, W, C], F[R, S, C, C], G[R, S, C, C]) -> (Z) { O[y, x, k:H, W, C] = +(I[y+r-1, x+s-1, c]*F[r, s, c, k]); A = relu(O); P[y, x, k:H, W, C] = +(A[y+r-1, x+s-1, c]*G[r, s, c, k]); Z = relu(P+I); }",
        "I=f32[12,12,16] F=f32[3,3,16,16] G=f32[3,3,16,16]",
    ),
    ManagedCase(
        "conv_big",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) { O[y, x, k:H, W, K] = +(I[y+r-1, x+s-1, c]*F[r, s, c, k]); }",
        "I=f32[57,58,32] F=f32[3,3,32,64]",
    ),
    ManagedCase(
        "conv_i8",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) { O[y, x, k:H, W, K] = +(I[y+r-1, x+s-1, c]*F[r, s, c, k]); }",
        "I=i8[12,13,20] F=i8[3,3,20,24]",
        integers=(-128, 128),
    ),
    ManagedCase(
        "conv_bf16",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) { O[y, x, k:H, W, K] = +(I[y+r-1, x+s-1, c]*F[r, s, c, k]); }",
        "I=bf16[12,13,20] F=bf16[3,3,20,24]",
    ),
    ManagedCase(
        "maxpool",
        "function (I[H, W, C]) -> (O) { O[y, x, c:(H+1)/2, (W+1)/2, C] = >(I[2*y+r-1, 2*x+s-1, c]), r<3, s<3; }",
        "I=f32[15,14,6]",
    ),
    ManagedCase(
        "avgpool",
        "function (I[H, W, C]) -> (O) { S[y, x, c:H/2, W/2, C] = +(I[2*y+r, 2*x+s, c]), r<2, s<2; O = S/4; }",
        "I=f32[15,14,6]",
    ),
    ManagedCase(
        "global_pool",
        "function (I[H, W, C]) -> (O) { S[c:C] = +(I[y, x, c]); O = S/(H*W); }",
        "I=f32[40,41,30]",
    ),
    ManagedCase(
        "maxpool_i8",
        "function (I[H, W]) -> (O) { O[y, x:H/3, W/3] = >(I[3*y+r, 3*x+s]), r<3, s<3; }",
        "I=i8[100,101]",
        integers=(-128, 128),
    ),
    ManagedCase(
        "unpool",
        "function (I[H, W]) -> (O) { O[2y+i, 2x+j:2*H, 2*W] = =(I[y, x]), i<2, j<2; }",
        "I=f32[20,31]",
    ),
    ManagedCase(
        "argmax",
        "function (X[N, C]) -> (L) { M[n, 0:N, 1] = >(X[n, c]); P = X==M?index(X, 1):C; L[n:N] = <(P[n, c]); }",
        "X=f32[9,33]",
    ),
    ManagedCase(
        "argmax0",
        "function (X[N, C]) -> (L) { M[0, c:1, C] = >(X[n, c]); P = X==M?index(X, 0):N; L[c:C] = <(P[n, c]); }",
        "X=i32[9,33]",
    ),
    ManagedCase(
        "argmax_big",
        "function (X[N]) -> (L) { M[] = >(X[n]); P = X==M?index(X, 0):N; L[] = <(P[n]); }",
        "X=f32[120001]",
    ),
    ManagedCase(
        "topk1",
        "function (X[N, C]) -> (M, L) { M[n, 0:N, 1] = >(X[n, c]); H = X==M; L[n:N] = +(H[n, c]); }",
        "X=i8[9,33]",
    ),
    ManagedCase(
        "gather0", "function (D, I) -> (R) { R = gather(D, I); }", "D=f32[50,7] I=i32[9]", integers=(0, 50)
    ),
    ManagedCase(
        "gather_big",
        "function (D, I) -> (R) { R = gather(D, I); }",
        "D=f32[9,700] I=i32[90]",
        integers=(0, 9),
    ),
    ManagedCase(
        "gather_huge",
        "function (D, I) -> (R) { R = gather(D, I); }",
        "D=f32[4000,30] I=i32[9]",
        integers=(0, 4000),
    ),
    ManagedCase(
        "embedding_mlp",
        "function (D[V, E], I[T], W[E, O]) -> (R) { X = gather(D, I); R[t, o:T, O] = +(X[t, e]*W[e, o]); }",
        "D=f32[50,16] I=i32[18] W=f32[16,20]",
        integers=(0, 50),
    ),
    ManagedCase(
        "scatter_add",
        "function (U, I, L) -> (R) { S = scatter(U, I, L); R = S*2+1; }",
        "U=f32[60,3] I=i32[60] L=f32[11,3]",
        integers=(-2, 13),
    ),
    ManagedCase(
        "scatter_ax1",
        "function (U, I, L) -> (R) { R = scatter(U, I, L, 1); }",
        "U=f32[3,20] I=i32[20] L=f32[3,8]",
        integers=(0, 8),
    ),
    ManagedCase(
        "gather_gather",
        "function (D, I, J) -> (R) { A = gather(D, I); R = gather(A, J, 1); }",
        "D=i32[20,9] I=i32[5] J=i32[4]",
        integers=(0, 9),
    ),
    ManagedCase(
        "scatter_then_conv",
        "function (U[N], I[N], L[M], K[3]) -> (R) { S = scatter(U, I, L); R[i:M] = +(S[i+k-1]*K[k]); }",
        "U=f32[60] I=i32[60] L=f32[70] K=f32[3]",
        integers=(0, 70),
    ),
    ManagedCase(
        "scatter_i64",
        "function (U, I, L) -> (R) { R = scatter(U, I, L); }",
        "U=i64[6] I=i64[6] L=i64[9]",
        integers=(0, 9),
    ),
    ManagedCase("cumsum", "function (A[N]) -> (C) { C[i:N] = +(A[k]), i-k<N; }", "A=f32[130]"),
    ManagedCase(
        "cumsum_rows", "function (A[N, M]) -> (C) { C[i, j:N, M] = +(A[i, k]), j-k<M; }", "A=f32[17,40]"
    ),
    ManagedCase(
        "cumprod", "function (A[N]) -> (C) { C[i:N] = *(A[k]), i-k<N; }", "A=f32[30]", floats=(0.5, 1.5)
    ),
    ManagedCase(
        "cummax", "function (A[N]) -> (C) { C[i:N] = >(A[k]), i-k<N; }", "A=i32[300]", integers=(-1000, 1000)
    ),
    ManagedCase("cumsum_big", "function (A[N]) -> (C) { C[i:N] = +(A[k]), i-k<N; }", "A=f32[1500]"),
    ManagedCase("tril", "function (B[M, M]) -> (L) { L[i, j:M, M] = =(B[i, j]), j<i; }", "B=i32[33,33]"),
    ManagedCase(
        "tri_solve_like",
        "function (B[M, M], X[M]) -> (L) { L[i:M] = +(B[i, j]*X[j]), j<i; }",
        "B=f32[70,70] X=f32[70]",
    ),
    ManagedCase(
        "toeplitz", "function (A[N], B[M]) -> (C) { C[i:N+M-1] = +(A[i-j]*B[j]); }", "A=f32[40] B=f32[23]"
    ),
    ManagedCase("window_sum", "function (A[N]) -> (C) { C[i:N] = +(A[i-k]), k<17; }", "A=f32[1000]"),
    ManagedCase(
        "band",
        "function (A[N, N], X[N]) -> (C) { C[i:N] = +(A[i, j]*X[j]), i-j+2<5; }",
        "A=f32[60,60] X=f32[60]",
    ),
    ManagedCase("vec1", "function (A[N]) -> (R) { R = A*2+1; }", "A=f32[1]"),
    ManagedCase("scalar", "function (A[]) -> (R) { R = A*2+1; }", "A=f32[]"),
    ManagedCase("scalar_sum", "function (A[], B[N]) -> (R) { S[] = +(B[i]); R = S*A; }", "A=f32[] B=f32[5]"),
    ManagedCase(
        "r6",
        "function (A[A1, B1, C1, D1, E1, F1]) -> (R) { R[f, e, d, c, b, a:F1, E1, D1, C1, B1, A1] = =(A[a, b, c, d, e, f]); }",
        "A=f32[2,3,4,5,2,3]",
    ),
    ManagedCase(
        "r6b",
        "function (A[A1, B1, C1, D1, E1, F1]) -> (R) { R[a, c, e:A1, C1, E1] = +(A[a, b, c, d, e, f]); }",
        "A=i32[2,3,4,5,6,7]",
    ),
    ManagedCase("r5ew", "function (A, B) -> (R) { R = A*B+A; }", "A=f32[2,3,1,5,2] B=f32[3,4,1,2]"),
    ManagedCase(
        "one_elems",
        "function (A[N, N], B[N, N]) -> (C) { C[i, j:N, N] = +(A[i, k]*B[k, j]); }",
        "A=f32[1,1] B=f32[1,1]",
    ),
    ManagedCase(
        "m1",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=f32[1,64] B=f32[64,64]",
    ),
    ManagedCase(
        "k1",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=f32[64,1] B=f32[1,64]",
    ),
    ManagedCase(
        "n1",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=f32[64,64] B=f32[64,1]",
    ),
    ManagedCase(
        "zero_rows",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=f32[0,64] B=f32[64,3]",
    ),
    ManagedCase(
        "zero_k",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=f32[5,0] B=f32[0,3]",
    ),
    ManagedCase("zero_ew", "function (A, B) -> (C) { C = A+B; }", "A=f32[5,0] B=f32[1,0]"),
    ManagedCase(
        "zero_sum", "function (A[M, N]) -> (C, D) { C[] = +(A[i, j]); D[i:M] = >(A[i, j]); }", "A=f32[4,0]"
    ),
    ManagedCase("zero_gather", "function (D, I) -> (R) { R = gather(D, I); }", "D=f32[5,3] I=i32[0]"),
    ManagedCase(
        "mm_17_19_23",
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n:M, N] = +(A[m, k]*B[k, n]); R = relu(C+D); }",
        "A=f32[17,23] B=f32[23,19] D=f32[19]",
    ),
    ManagedCase(
        "mm_15_16_17",
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n:M, N] = +(A[m, k]*B[k, n]); R = relu(C+D); }",
        "A=f32[15,17] B=f32[17,16] D=f32[16]",
    ),
    ManagedCase(
        "mm_16_16_16",
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n:M, N] = +(A[m, k]*B[k, n]); R = relu(C+D); }",
        "A=f32[16,16] B=f32[16,16] D=f32[16]",
    ),
    ManagedCase(
        "mm_31_33_47",
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n:M, N] = +(A[m, k]*B[k, n]); R = relu(C+D); }",
        "A=f32[31,47] B=f32[47,33] D=f32[33]",
    ),
    ManagedCase(
        "mm_1_97_13",
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n:M, N] = +(A[m, k]*B[k, n]); R = relu(C+D); }",
        "A=f32[1,13] B=f32[13,97] D=f32[97]",
    ),
    ManagedCase(
        "mm_127_2_3",
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n:M, N] = +(A[m, k]*B[k, n]); R = relu(C+D); }",
        "A=f32[127,3] B=f32[3,2] D=f32[2]",
    ),
    ManagedCase(
        "mm_64_64_640",
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n:M, N] = +(A[m, k]*B[k, n]); R = relu(C+D); }",
        "A=f32[64,640] B=f32[640,64] D=f32[64]",
    ),
    ManagedCase(
        "mm_129_65_33",
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n:M, N] = +(A[m, k]*B[k, n]); R = relu(C+D); }",
        "A=f32[129,33] B=f32[33,65] D=f32[65]",
    ),
    ManagedCase(
        "mm_3_5_2000",
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n:M, N] = +(A[m, k]*B[k, n]); R = relu(C+D); }",
        "A=f32[3,2000] B=f32[2000,5] D=f32[5]",
    ),
    ManagedCase(
        "mm_big",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=f32[301,299] B=f32[299,307]",
    ),
    ManagedCase(
        "mm_bigk",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=f32[20,5003] B=f32[5003,20]",
    ),
    ManagedCase(
        "mm_bign",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=f32[5,17] B=f32[17,20011]",
    ),
    ManagedCase(
        "mm_bigi8",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=i8[200,611] B=i8[611,157]",
        integers=(-128, 128),
    ),
    ManagedCase(
        "mm_i8_wide_epi",
        "function (A[M, K], B[K, N], S[N]) -> (R) { C[m, n:M, N] = +(A[m, k]*B[k, n]); R = as_int(floor(as_float(C, 32)*S), 8); }",
        "A=i8[40,61] B=i8[61,37] S=f32[37]",
        floats=(0, 0.01),
    ),
    ManagedCase(
        "mm_f16",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=f16[20,64] B=f16[64,23]",
    ),
    ManagedCase(
        "mm_bf16_epi",
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n:M, N] = +(A[m, k]*B[k, n]); R = relu(C+D); }",
        "A=bf16[20,64] B=bf16[64,23] D=bf16[23]",
    ),
    ManagedCase(
        "mm_bf16_f32",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N]:f32 = +(A[m, k]*B[k, n]); }",
        "A=bf16[50,64] B=bf16[64,53]",
    ),
    ManagedCase(
        "mm_f64",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=f64[20,64] B=f64[64,23]",
    ),
    ManagedCase(
        "mm_i32",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=i32[20,64] B=i32[64,23]",
        integers=(-2147483648, 2147483647),
    ),
    ManagedCase(
        "mm_u8",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=u8[20,64] B=i8[64,23]",
        integers=(-128, 128),
    ),
    ManagedCase(
        "mm_i64",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = +(A[m, k]*B[k, n]); }",
        "A=i64[5,6] B=i64[6,7]",
    ),
    ManagedCase(
        "mm_max",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = >(A[m, k]+B[k, n]); }",
        "A=f32[30,41] B=f32[41,27]",
    ),
    ManagedCase(
        "mm_min_i8",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = <(A[m, k]*B[k, n]); }",
        "A=i8[30,41] B=i8[41,27]",
    ),
    ManagedCase(
        "mm_prod",
        "function (A[M, K], B[K, N]) -> (C) { C[m, n:M, N] = *(A[m, k]+B[k, n]); }",
        "A=i32[30,11] B=i32[11,27]",
    ),
    ManagedCase(
        "mm_tn",
        "function (A[K, M], B[N, K]) -> (C) { C[n, m:N, M] = +(A[k, m]*B[n, k]); }",
        "A=f32[45,34] B=f32[23,45]",
    ),
    ManagedCase(
        "bmm",
        "function (A[B, M, K], C[B, K, N]) -> (R) { R[b, m, n:B, M, N] = +(A[b, m, k]*C[b, k, n]); }",
        "A=f32[9,20,17] C=f32[9,17,18]",
    ),
    ManagedCase(
        "mv", "function (A[M, K], X[K]) -> (Y) { Y[m:M] = +(A[m, k]*X[k]); }", "A=f32[300,301] X=f32[301]"
    ),
    ManagedCase(
        "vm", "function (A[M, K], X[M]) -> (Y) { Y[k:K] = +(A[m, k]*X[m]); }", "A=f32[300,301] X=f32[300]"
    ),
    ManagedCase(
        "self_mm", "function (A[M, K]) -> (C) { C[m, n:M, M] = +(A[m, k]*A[n, k]); }", "A=f32[40,33]"
    ),
    ManagedCase(
        "square",
        "function (A[M, M]) -> (C) { B[m, n:M, M] = +(A[m, k]*A[k, n]); C[m, n:M, M] = +(B[m, k]*A[k, n]); }",
        "A=f32[23,23]",
    ),
    ManagedCase(
        "chain4",
        "function (A[M, M]) -> (E) { B[m, n:M, M] = +(A[m, k]*A[k, n]); C[m, n:M, M] = +(B[m, k]*B[k, n]); D[m, n:M, M] = +(C[m, k]*B[k, n]); E = D+A; }",
        "A=f32[18,18]",
        floats=(-0.3, 0.3),
    ),
    ManagedCase(
        "triple",
        "function (X[I], W[I, J], Y[J]) -> (Z) { Z[] = +(X[i]*W[i, j]*Y[j]); }",
        "X=f32[100] W=f32[100,90] Y=f32[90]",
    ),
    ManagedCase(
        "mttkrp",
        "function (T[I, J, K], A[J, R], B[K, R]) -> (M) { M[i, r:I, R] = +(T[i, j, k]*A[j, r]*B[k, r]); }",
        "T=f32[8,9,10] A=f32[9,4] B=f32[10,4]",
    ),
    ManagedCase("sum_big", "function (A[N]) -> (S) { S[] = +(A[i]); }", "A=f32[200003]"),
    ManagedCase("sum_big2", "function (A[M, N]) -> (S) { S[] = +(A[i, j]); }", "A=f32[503,401]"),
    ManagedCase("max_big", "function (A[M, N]) -> (S) { S[] = >(A[i, j]); }", "A=f32[503,401]"),
    ManagedCase(
        "prod_i", "function (A[M, N]) -> (S) { S[] = *(A[i, j]); }", "A=i32[53,41]", integers=(-3, 4)
    ),
    ManagedCase("col_sum", "function (A[M, N]) -> (S) { S[j:N] = +(A[i, j]); }", "A=f32[2003,41]"),
    ManagedCase("col_sum_wide", "function (A[M, N]) -> (S) { S[j:N] = +(A[i, j]); }", "A=f32[11,20011]"),
    ManagedCase("row_sum_wide", "function (A[M, N]) -> (S) { S[i:M] = +(A[i, j]); }", "A=f32[7,30011]"),
    ManagedCase("row_max_tall", "function (A[M, N]) -> (S) { S[i:M] = >(A[i, j]); }", "A=f32[30011,7]"),
    ManagedCase(
        "mid_sum", "function (A[M, N, K]) -> (S) { S[i, k:M, K] = +(A[i, j, k]); }", "A=f32[20,300,21]"
    ),
    ManagedCase("sum_i8", "function (A[N]) -> (S) { S[] = +(A[i]); }", "A=i8[100003]", integers=(-128, 128)),
    ManagedCase("sum_bf16", "function (A[N]) -> (S) { S[] = +(A[i]); }", "A=bf16[3003]", floats=(0, 1)),
    ManagedCase(
        "sum_init",
        "function (A[M, N], B[M]) -> (S) { S[i:M] = +(A[i, j]) init B; }",
        "A=f32[30,50] B=f32[30]",
    ),
    ManagedCase("max_init", "function (A[M, N]) -> (S) { S[i:M] = >(A[i, j]) init 0; }", "A=i32[30,50]"),
    ManagedCase(
        "sum_default", "function (A[N], D[M]) -> (S) { S[i+3:M] = =(A[i]) default D; }", "A=f32[30] D=f32[50]"
    ),
    ManagedCase(
        "sum_default2",
        "function (A[N], D[M]) -> (S) { S[2*i+1:M] = =(A[i]) default D; }",
        "A=f32[20000] D=f32[50001]",
    ),
    ManagedCase(
        "mean_var",
        "function (X[N]) -> (M, V) { S[] = +(X[i]); M = S/N; D = X-M; Q[] = +(D[i]*D[i]); V = Q/N; }",
        "X=f32[70001]",
    ),
    ManagedCase(
        "norm", "function (X[N, C]) -> (R) { Q[] = +(X[i, j]*X[i, j]); R = X/sqrt(Q); }", "X=f32[300,301]"
    ),
    ManagedCase(
        "batchnorm",
        "function (X[N, H, W, C], G[C], B[C]) -> (R) { S[0, 0, 0, c:1, 1, 1, C] = +(X[n, y, x, c]); M = S/(N*H*W); D = X-M; V[0, 0, 0, c:1, 1, 1, C] = +(D[n, y, x, c]*D[n, y, x, c]); R = D/sqrt(V/(N*H*W)+0.001)*G+B; }",
        "X=f32[3,10,11,13] G=f32[13] B=f32[13]",
    ),
    ManagedCase(
        "batchnorm_big",
        "function (X[N, H, W, C], G[C], B[C]) -> (R) { S[0, 0, 0, c:1, 1, 1, C] = +(X[n, y, x, c]); M = S/(N*H*W); D = X-M; V[0, 0, 0, c:1, 1, 1, C] = +(D[n, y, x, c]*D[n, y, x, c]); R = D/sqrt(V/(N*H*W)+0.001)*G+B; }",
        "X=f32[4,30,31,33] G=f32[33] B=f32[33]",
    ),
    ManagedCase(
        "logsumexp",
        "function (X[N, C]) -> (R) { M[n, 0:N, 1] = >(X[n, c]); E = exp(X-M); S[n, 0:N, 1] = +(E[n, c]); R = log(S)+M; }",
        "X=f32[50,60]",
    ),
    ManagedCase(
        "count_eq", "function (L[P], K[Q]) -> (C) { C[q:Q] = +(L[p]==K[q]); }", "L=i32[100] K=i32[7]"
    ),
    ManagedCase(
        "pick",
        "function (L[P], K[Q], V[Q]) -> (C) { C[p:P] = +(L[p]==K[q]?V[q]); }",
        "L=i32[100] K=i32[7] V=f32[7]",
    ),
    ManagedCase(
        "histogram",
        "function (L[P], K[Q]) -> (C) { C[q:Q] = +(L[p]==K[q]); }",
        "L=u8[30000] K=u8[64]",
        integers=(0, 64),
    ),
    ManagedCase("transpose", "function (A[M, N]) -> (T) { T[j, i:N, M] = =(A[i, j]); }", "A=f32[30,41]"),
    ManagedCase(
        "transpose_big", "function (A[M, N]) -> (T) { T[j, i:N, M] = =(A[i, j]); }", "A=f32[601,411]"
    ),
    ManagedCase("transpose_i8", "function (A[M, N]) -> (T) { T[j, i:N, M] = =(A[i, j]); }", "A=i8[601,411]"),
    ManagedCase(
        "transpose_ew",
        "function (A[M, N], B[N, M]) -> (R) { T[j, i:N, M] = =(A[i, j]); R = exp(T)+B; }",
        "A=f32[60,41] B=f32[41,60]",
    ),
    ManagedCase("reverse", "function (A[N]) -> (R) { R[N-1-i:N] = =(A[i]); }", "A=f32[50001]"),
    ManagedCase("flip2", "function (A[M, N]) -> (R) { R[M-1-i, N-1-j:M, N] = =(A[i, j]); }", "A=f32[5,301]"),
    ManagedCase(
        "concat",
        "function (A[N], B[M]) -> (R) { X[i:N+M] = =(A[i]); Y[i+N:N+M] = =(B[i]); R = X+Y; }",
        "A=f32[50] B=f32[33]",
    ),
    ManagedCase("slice", "function (A[M, N]) -> (R) { R[i, j:M-4, N/2] = =(A[i+2, 2*j]); }", "A=f32[40,51]"),
    ManagedCase("diag", "function (A[N, N]) -> (D) { D[i:N] = =(A[i, i]); }", "A=f32[77,77]"),
    ManagedCase("trace", "function (A[N, N]) -> (D) { D[] = +(A[i, i]); }", "A=f32[177,177]"),
    ManagedCase("make_diag", "function (D[N]) -> (A) { A[i, i:N, N] = =(D[i]); }", "D=f32[77]"),
    ManagedCase(
        "eye_outer",
        "function (A[M], B[N]) -> (C) { C[i, j, i:M, N, M] = =(A[i]*B[j]); }",
        "A=f32[7] B=f32[9]",
    ),
    ManagedCase("reshape1", "function (A) -> (R) { R = reshape(A, 24); }", "A=f32[2,3,4]"),
    ManagedCase("reshape2", "function (A) -> (R) { R = reshape(A, 36, 35); }", "A=f32[30,42]"),
    ManagedCase(
        "reshape_mm",
        "function (A[M, N], B[K, O]) -> (R) { X = reshape(A, M*N/K, K); R[i, o:M*N/K, O] = +(X[i, k]*B[k, o]); }",
        "A=f32[30,42] B=f32[70,5]",
    ),
    ManagedCase("reshape_big", "function (A) -> (R) { R = reshape(A, 300, 200)*2; }", "A=f32[200,300]"),
    ManagedCase(
        "pixel_shuffle",
        "function (A[H, W, R, S]) -> (O) { O[2*y+r, 2*x+s:2*H, 2*W] = =(A[y, x, r, s]); }",
        "A=f32[20,21,2,2]",
    ),
    ManagedCase(
        "space_to_depth",
        "function (A[H, W]) -> (O) { O[y, x, r, s:H/2, W/2, 2, 2] = =(A[2*y+r, 2*x+s]); }",
        "A=f32[40,42]",
    ),
    ManagedCase("stride_holes", "function (A[N]) -> (B) { B[3i+1:3*N+2] = =(A[i]); }", "A=f32[30001]"),
    ManagedCase("shift", "function (A[M, N]) -> (B) { B[i, j:M, N] = =(A[i-3, j+5]); }", "A=f32[20,30]"),
    ManagedCase("pad", "function (A[M, N]) -> (B) { B[i+2, j+3:M+4, N+6] = =(A[i, j]); }", "A=f32[20,30]"),
    ManagedCase(
        "pad_big", "function (A[M, N]) -> (B) { B[i+2, j+3:M+4, N+6] = =(A[i, j]); }", "A=f32[200,301]"
    ),
    ManagedCase(
        "kron",
        "function (A[M, N], B[P, Q]) -> (K) { K[P*i+p, Q*j+q:M*P, N*Q] = =(A[i, j]*B[p, q]); }",
        "A=f32[5,6] B=f32[7,3]",
    ),
    ManagedCase("diagonals", "function (A[N, N]) -> (D) { D[k:2*N-1] = +(A[i, k-i]); }", "A=f32[20,20]"),
    ManagedCase("antidiag_big", "function (A[N, N]) -> (D) { D[k:2*N-1] = +(A[i, k-i]); }", "A=f32[220,220]"),
    ManagedCase("autocorr", "function (A[N]) -> (R) { R[k:N] = +(A[i]*A[i+k]); }", "A=f32[300]"),
    ManagedCase("bools", "function (A, B) -> (R, S) { R = A&B; S = A|~B; }", "A=bool[500] B=bool[500]"),
    ManagedCase(
        "mask_sel", "function (M, A, B) -> (R) { R = M?A:B; }", "M=bool[33,1] A=f32[33,40] B=f32[40]"
    ),
    ManagedCase("bool_cnt", "function (A[N]) -> (R) { R[] = +(A[i]); }", "A=bool[5000]"),
    ManagedCase(
        "bool_mm",
        "function (A[M, K], B[K, N]) -> (R) { R[m, n:M, N] = +(A[m, k]==B[k, n]); }",
        "A=i8[20,30] B=i8[30,10]",
    ),
    ManagedCase(
        "mixed_t",
        "function (A, B, C) -> (R, S, T) { R = A+B; S = B*C; T = A<C; }",
        "A=i8[50] B=f16[50] C=i16[50]",
    ),
    ManagedCase("u64", "function (A, B) -> (R) { R = A*B+1; }", "A=u64[50] B=u64[50]"),
    ManagedCase(
        "i16div", "function (A, B) -> (R, S) { R = floordiv(A, B); S = mod(A, B); }", "A=i16[50] B=i16[50]"
    ),
    ManagedCase("truediv", "function (A, B) -> (R) { R = A/B; }", "A=i32[50] B=i32[50]"),
    ManagedCase(
        "shifts",
        "function (A, B) -> (R, S) { R = A<<B; S = A>>B; }",
        "A=i32[50] B=i32[50]",
        integers=(-2, 40),
    ),
    ManagedCase("f16ew", "function (A, B) -> (R) { R = exp(A)*B+tanh(A); }", "A=f16[5000] B=f16[5000]"),
    ManagedCase("bf16ew", "function (A, B) -> (R) { R = exp(A)*B+tanh(A); }", "A=bf16[3000] B=bf16[3000]"),
    ManagedCase("f64ew", "function (A) -> (R) { R = sin(A)+cos(A)*erf(A); }", "A=f64[3001]"),
    ManagedCase("ew_big", "function (A, B) -> (R) { R = A*B+A; }", "A=f32[511,513] B=f32[511,513]"),
    ManagedCase("ew_big_bcast", "function (A, B) -> (R) { R = A*B+A; }", "A=f32[511,1] B=f32[1,513]"),
    ManagedCase(
        "casts",
        "function (A) -> (R, S, T) { R = as_int(A, 8); S = as_uint(A*10, 16); T = as_bool(A); }",
        "A=f32[500]",
    ),
    ManagedCase(
        "multi_out",
        "function (A, B) -> (R, S, T) { R = A+B; S = R*A; T = S-R; }",
        "A=f32[70,70] B=f32[70,70]",
    ),
    ManagedCase(
        "multi_out_big",
        "function (A, B) -> (R, S, T) { R = A+B; S = R*A; T = S-R; }",
        "A=f32[270,270] B=f32[270,270]",
    ),
    ManagedCase(
        "out_reused",
        "function (A[M, K], B[K, N]) -> (C, S) { C[m, n:M, N] = +(A[m, k]*B[k, n]); S[m:M] = +(C[m, n]); }",
        "A=f32[20,64] B=f32[64,23]",
    ),
    ManagedCase(
        "out_reused_big",
        "function (A[M, K], B[K, N]) -> (C, S, D) { C[m, n:M, N] = +(A[m, k]*B[k, n]); S[n:N] = >(C[m, n]); D = C-S; }",
        "A=f32[150,64] B=f32[64,523]",
    ),
    ManagedCase("copy_in", "function (A) -> (R) { R = A; }", "A=f32[70,70]"),
    ManagedCase("copy_big", "function (A) -> (R) { R = A; }", "A=f32[700,170]"),
    ManagedCase("copy2", "function (A) -> (R, S) { R = A; S = A; }", "A=f32[70]"),
    ManagedCase("unused", "function (A, B) -> (R) { R = A+1; }", "A=f32[70] B=f32[7,9]"),
    ManagedCase(
        "no_inputs_used", "function (A[N, M]) -> (R) { R = index(A, 0)+index(A, 1); }", "A=f32[70,30]"
    ),
    ManagedCase("const_only", "function (A[N]) -> (R) { R[i:N] = =(A[i]) ; }", "A=f32[7]"),
    ManagedCase("fill", "function (A[N]) -> (R) { Z = A*0; R = Z+3; }", "A=f32[7]"),
    ManagedCase("shape_of", "function (A) -> (R) { R = shape(A); }", "A=f32[7,8,9]"),
    ManagedCase(
        "index_big", "function (A[N, M]) -> (R) { R = index(A, 0)*M+index(A, 1); }", "A=f32[500,300]"
    ),
    ManagedCase(
        "const_mm",
        "function (A[M, K], B[K, N], D[N]) -> (R) { C[m, n:M, N] = +(A[m, k]*B[k, n]); R = relu(C+D); }",
        "A=f32[20,64] B=f32[64,23] D=f32[23]",
        const=("B", "D"),
    ),
    ManagedCase(
        "const_pre",
        "function (A[M, K], B[K, N], D[N]) -> (R) { W = exp(B)*D; C[m, n:M, N] = +(A[m, k]*W[k, n]); R = relu(C+D); }",
        "A=f32[20,64] B=f32[64,23] D=f32[23]",
        const=("B", "D"),
    ),
    ManagedCase(
        "const_all", "function (A, B) -> (R) { R = A*B+1; }", "A=f32[20] B=f32[20]", const=("A", "B")
    ),
    ManagedCase(
        "const_gather",
        "function (A, I) -> (R) { R = gather(A, I)*2; }",
        "A=f32[20,3] I=i32[7]",
        const=("A",),
        integers=(0, 20),
    ),
    ManagedCase(
        "const_conv",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) { O[y, x, k:H, W, K] = +(I[y+r-1, x+s-1, c]*F[r, s, c, k]); }",
        "I=f32[15,17,16] F=f32[3,3,16,19]",
        const=("F",),
    ),
    ManagedCase(
        "kernels30",
        "function (X[N, N], A[N]) -> (Y29) { Y0 = X+A; Y1 = tanh(Y0*A+X); Y2[j, i:N, N] = =(Y1[i, j]); Y3[i, j:N, N] = +(Y2[i, j+k-1]*A[k]), k<3; S4[i, 0:N, 1] = >(Y3[i, j]); Y4 = (Y3-S4)/4; Y5[i, j:N, N] = +(Y4[i, k]*X[k, j]); Y6 = tanh(Y5*A+X); Y7[j, i:N, N] = =(Y6[i, j]); Y8[i, j:N, N] = +(Y7[i, j+k-1]*A[k]), k<3; S9[i, 0:N, 1] = >(Y8[i, j]); Y9 = (Y8-S9)/4; Y10[i, j:N, N] = +(Y9[i, k]*X[k, j]); Y11 = tanh(Y10*A+X); Y12[j, i:N, N] = =(Y11[i, j]); Y13[i, j:N, N] = +(Y12[i, j+k-1]*A[k]), k<3; S14[i, 0:N, 1] = >(Y13[i, j]); Y14 = (Y13-S14)/4; Y15[i, j:N, N] = +(Y14[i, k]*X[k, j]); Y16 = tanh(Y15*A+X); Y17[j, i:N, N] = =(Y16[i, j]); Y18[i, j:N, N] = +(Y17[i, j+k-1]*A[k]), k<3; S19[i, 0:N, 1] = >(Y18[i, j]); Y19 = (Y18-S19)/4; Y20[i, j:N, N] = +(Y19[i, k]*X[k, j]); Y21 = tanh(Y20*A+X); Y22[j, i:N, N] = =(Y21[i, j]); Y23[i, j:N, N] = +(Y22[i, j+k-1]*A[k]), k<3; S24[i, 0:N, 1] = >(Y23[i, j]); Y24 = (Y23-S24)/4; Y25[i, j:N, N] = +(Y24[i, k]*X[k, j]); Y26 = tanh(Y25*A+X); Y27[j, i:N, N] = =(Y26[i, j]); Y28[i, j:N, N] = +(Y27[i, j+k-1]*A[k]), k<3; S29[i, 0:N, 1] = >(Y28[i, j]); Y29 = (Y28-S29)/4; }",
        "X=f32[21,21] A=f32[21]",
        floats=(-0.5, 0.5),
    ),
    ManagedCase(
        "branches",
        "function (X[N]) -> (R) { A = X+1; B = A*2; C = A*3; D = B+C; E = B*C; F = D-E; R = F+A; }",
        "X=f32[30000]",
    ),
    ManagedCase(
        "diamond_conv",
        "function (X[N], K[3]) -> (R) { A[i:N] = +(X[i+k-1]*K[k]); B[i:N] = +(A[i+k-1]*K[k]); C[i:N] = +(A[i+2*k-2]*K[k]); R = B+C; }",
        "X=f32[30000] K=f32[3]",
    ),
    ManagedCase(
        "sobel_big",
        "function (I[H, W], S[3], D[3]) -> (M) { SY[y, x:H, W] = +(I[y+i-1, x]*S[i]); GX[y, x:H, W] = +(SY[y, x+i-1]*D[i]); SX[y, x:H, W] = +(I[y, x+i-1]*S[i]); GY[y, x:H, W] = +(SX[y+i-1, x]*D[i]); M = sqrt(GX*GX+GY*GY); }",
        "I=f32[150,201] S=f32[3] D=f32[3]",
    ),
    ManagedCase(
        "iir_like",
        "function (X[N]) -> (R) { A[i:N] = +(X[i-k]), k<3; B[i:N] = >(A[i-k]), k<3; R = B-X; }",
        "X=f32[5000]",
    ),
    ManagedCase(
        "normalize_cols",
        "function (X[N, C]) -> (R) { M[0, c:1, C] = >(X[n, c]); E = exp(X-M); S[0, c:1, C] = +(E[n, c]); R = E/S; }",
        "X=f32[301,200]",
    ),
    ManagedCase(
        "norm_both",
        "function (X[N, C]) -> (R) { S[n, 0:N, 1] = +(X[n, c]); T[0, c:1, C] = +(X[n, c]); U[] = +(X[n, c]); R = X-S/C-T/N+U/(N*C); }",
        "X=f32[201,200]",
    ),
    ManagedCase("poly", "function (X) -> (R) { R = ((X*3+2)*X+1)*X-5; }", "X=f32[7,11,13]"),
    ManagedCase("big3d", "function (X, Y) -> (R) { R = max(X, Y); }", "X=f32[70,71,72] Y=f32[72]"),
    ManagedCase(
        "dims_over", "function (X[N, M, K]) -> (R) { R[k, n, m:K, N, M] = =(X[n, m, k]); }", "X=f32[70,71,72]"
    ),
    ManagedCase("large_axis_sum", "function (X[N, M]) -> (R) { R[n:N] = +(X[n, m]); }", "X=f32[70000,2]"),
    ManagedCase(
        "tconv2d_big",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) { O[2*y+r, 2*x+s, k:2*H+1, 2*W+1, K] = +(I[y, x, c]*F[r, s, c, k]); }",
        "I=f32[40,41,8] F=f32[3,3,8,24]",
    ),
    ManagedCase(
        "tconv2d_big2",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) { O[y, x, k:2*H, 2*W, K] = +(I[(y-r+1)/2, (x-s+1)/2, c]*F[r, s, c, k]); }",
        "I=f32[40,41,8] F=f32[3,3,8,24]",
    ),
    ManagedCase(
        "tconv_nooverlap_big",
        "function (I[H, W, C], F[R, S, C, K]) -> (O) { O[2*y+r, 2*x+s, k:2*H, 2*W, K] = +(I[y, x, c]*F[r, s, c, k]), r<2, s<2; }",
        "I=f32[60,61,8] F=f32[2,2,8,24]",
    ),
    ManagedCase("col2im", "function (I[N, T]) -> (O) { O[n+t:N+T-1] = +(I[n, t]); }", "I=f32[30000,5]"),
    ManagedCase(
        "gather_nd",
        "function (D, I) -> (R) { R = gather(D, I, 1); }",
        "D=f32[30,50,7] I=i32[9]",
        integers=(0, 50),
    ),
    ManagedCase("hough", "function (A[M, N]) -> (R) { R[i+j:M+N-1] = +(A[i, j]); }", "A=f32[300,301]"),
    ManagedCase(
        "polymul", "function (A[N], B[M]) -> (R) { R[i+j:N+M-1] = +(A[i]*B[j]); }", "A=f32[3000] B=f32[301]"
    ),
    ManagedCase(
        "every_third",
        "function (X[H, W]) -> (T2) { T0[x, y : 10, 14] = =(X[y, x]); T1[x, y : 14, 10] = =(T0[y, x]); T2[y, x : 8, 5] = +(T1[y + 3*i, 2*x + 2*j]), i < 3, j < 1; }",
        "X=f32[14,10]",
    ),
)
