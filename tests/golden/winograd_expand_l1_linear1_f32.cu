// winograd_expand_l1_linear1_f32: 2 map(s) of winograd-expand at 1 level(s), at 2 place(s).
// Each place is one independent part of the stage: its blocks are read once, mapped in registers, and the changed ones written once.
#ifdef REAL    // another type of elements, for who compiles this text for another purpose
typedef REAL Real;
#else
typedef float Real;
#endif
typedef long long Index;
constexpr int LANES = 4;

struct alignas(LANES * sizeof(Real)) Lanes { Real lane[LANES]; };

// {part, then grid row and column of each of its blocks}
__device__ const int PLACES[2][17] = {
    { 0, 0, 0, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0, 2, 0, 3, 0 },
    { 1, 0, 0, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0, 2, 0, 3, 0 },
};

// Whether the rows (or columns) of a space can be accessed in whole lanes.
__device__ __forceinline__ bool is_aligned(const Real* space, Index along, Index across)
{
    return along == 1 && across % LANES == 0 && reinterpret_cast<unsigned long long>(space) % sizeof(Lanes) == 0;
}

__device__ __forceinline__ Lanes load(const Real* from, Index along, int count, bool whole)
{
    Lanes lanes;
    if (whole) {
        lanes = *reinterpret_cast<const Lanes*>(from);
        return lanes;
    }
    #pragma unroll
    for (int e = 0; e < LANES; ++e) lanes.lane[e] = e < count ? from[e * along] : Real(0);
    return lanes;
}

__device__ __forceinline__ void store(Real* to, Index along, int count, bool whole, const Lanes& lanes)
{
    if (whole) {
        *reinterpret_cast<Lanes*>(to) = lanes;
        return;
    }
    #pragma unroll
    for (int e = 0; e < LANES; ++e) if (e < count) to[e * along] = lanes.lane[e];
}

// 4 block(s) read, 4 written, 4 addition(s) an element.
__device__ __forceinline__ void part_0(const int* place, Real* A, Index A_rs, Index A_cs, Real* B, Index B_rs, Index B_cs, Real* S, Index S_rs, Index S_cs, Real* T, Index T_rs, Index T_cs, Index bm, Index bk, Index bn, Index first)
{
    const bool by_row = S_cs == 1;
    const Index slow = by_row ? bm : bk;
    const Index fast = by_row ? bk : bm;
    bool aligned = fast % LANES == 0;
    const Index A_along = by_row ? A_cs : A_rs;
    aligned = aligned && is_aligned(A, A_along, by_row ? A_rs : A_cs);
    const Index S_along = by_row ? S_cs : S_rs;
    aligned = aligned && is_aligned(S, S_along, by_row ? S_rs : S_cs);
    // One tile of 8 x 32 threads a block, tiles along the unit stride first.
    const unsigned tiles = unsigned((fast + blockDim.x * LANES - 1) / (blockDim.x * LANES));
    const Index i = Index(blockIdx.x / tiles) * blockDim.y + threadIdx.y;
    const Index j = (Index(blockIdx.x % tiles) * blockDim.x + threadIdx.x) * LANES;
    if (i >= slow || j >= fast) return;
    const Index row = by_row ? i : j, column = by_row ? j : i;
    const int count = fast - j < LANES ? int(fast - j) : LANES;
    const bool whole = aligned && count == LANES;
    const Lanes v0 = load(A + (place[1] * bm + row) * A_rs + (place[2] * bk + column) * A_cs, A_along, count, whole);
    const Lanes v1 = load(A + (place[3] * bm + row) * A_rs + (place[4] * bk + column) * A_cs, A_along, count, whole);
    const Lanes v2 = load(A + (place[5] * bm + row) * A_rs + (place[6] * bk + column) * A_cs, A_along, count, whole);
    const Lanes v3 = load(A + (place[7] * bm + row) * A_rs + (place[8] * bk + column) * A_cs, A_along, count, whole);
    Lanes v4;
    #pragma unroll
    for (int e = 0; e < LANES; ++e) v4.lane[e] = v2.lane[e] + v3.lane[e];
    Lanes v5;
    #pragma unroll
    for (int e = 0; e < LANES; ++e) v5.lane[e] = -v0.lane[e] + v4.lane[e];
    Lanes v6;
    #pragma unroll
    for (int e = 0; e < LANES; ++e) v6.lane[e] = v0.lane[e] - v2.lane[e];
    Lanes v7;
    #pragma unroll
    for (int e = 0; e < LANES; ++e) v7.lane[e] = v1.lane[e] - v5.lane[e];
    {
        Real* const to = S + (place[9] * bm + row) * S_rs + (place[10] * bk + column) * S_cs;
        Lanes y;
        #pragma unroll
        for (int e = 0; e < LANES; ++e) y.lane[e] = v7.lane[e];
        store(to, S_along, count, whole, y);
    }
    {
        Real* const to = S + (place[11] * bm + row) * S_rs + (place[12] * bk + column) * S_cs;
        Lanes y;
        #pragma unroll
        for (int e = 0; e < LANES; ++e) y.lane[e] = v4.lane[e];
        store(to, S_along, count, whole, y);
    }
    {
        Real* const to = S + (place[13] * bm + row) * S_rs + (place[14] * bk + column) * S_cs;
        Lanes y;
        #pragma unroll
        for (int e = 0; e < LANES; ++e) y.lane[e] = v5.lane[e];
        store(to, S_along, count, whole, y);
    }
    {
        Real* const to = S + (place[15] * bm + row) * S_rs + (place[16] * bk + column) * S_cs;
        Lanes y;
        #pragma unroll
        for (int e = 0; e < LANES; ++e) y.lane[e] = v6.lane[e];
        store(to, S_along, count, whole, y);
    }
}

// 4 block(s) read, 4 written, 4 addition(s) an element.
__device__ __forceinline__ void part_1(const int* place, Real* A, Index A_rs, Index A_cs, Real* B, Index B_rs, Index B_cs, Real* S, Index S_rs, Index S_cs, Real* T, Index T_rs, Index T_cs, Index bm, Index bk, Index bn, Index first)
{
    const bool by_row = T_cs == 1;
    const Index slow = by_row ? bk : bn;
    const Index fast = by_row ? bn : bk;
    bool aligned = fast % LANES == 0;
    const Index B_along = by_row ? B_cs : B_rs;
    aligned = aligned && is_aligned(B, B_along, by_row ? B_rs : B_cs);
    const Index T_along = by_row ? T_cs : T_rs;
    aligned = aligned && is_aligned(T, T_along, by_row ? T_rs : T_cs);
    // One tile of 8 x 32 threads a block, tiles along the unit stride first.
    const unsigned tiles = unsigned((fast + blockDim.x * LANES - 1) / (blockDim.x * LANES));
    const Index i = Index(blockIdx.x / tiles) * blockDim.y + threadIdx.y;
    const Index j = (Index(blockIdx.x % tiles) * blockDim.x + threadIdx.x) * LANES;
    if (i >= slow || j >= fast) return;
    const Index row = by_row ? i : j, column = by_row ? j : i;
    const int count = fast - j < LANES ? int(fast - j) : LANES;
    const bool whole = aligned && count == LANES;
    const Lanes v0 = load(B + (place[1] * bk + row) * B_rs + (place[2] * bn + column) * B_cs, B_along, count, whole);
    const Lanes v1 = load(B + (place[3] * bk + row) * B_rs + (place[4] * bn + column) * B_cs, B_along, count, whole);
    const Lanes v2 = load(B + (place[5] * bk + row) * B_rs + (place[6] * bn + column) * B_cs, B_along, count, whole);
    const Lanes v3 = load(B + (place[7] * bk + row) * B_rs + (place[8] * bn + column) * B_cs, B_along, count, whole);
    Lanes v4;
    #pragma unroll
    for (int e = 0; e < LANES; ++e) v4.lane[e] = -v0.lane[e] + v1.lane[e];
    Lanes v5;
    #pragma unroll
    for (int e = 0; e < LANES; ++e) v5.lane[e] = v3.lane[e] - v4.lane[e];
    Lanes v6;
    #pragma unroll
    for (int e = 0; e < LANES; ++e) v6.lane[e] = -v1.lane[e] + v3.lane[e];
    Lanes v7;
    #pragma unroll
    for (int e = 0; e < LANES; ++e) v7.lane[e] = -v2.lane[e] + v5.lane[e];
    {
        Real* const to = T + (place[9] * bk + row) * T_rs + (place[10] * bn + column) * T_cs;
        Lanes y;
        #pragma unroll
        for (int e = 0; e < LANES; ++e) y.lane[e] = v7.lane[e];
        store(to, T_along, count, whole, y);
    }
    {
        Real* const to = T + (place[11] * bk + row) * T_rs + (place[12] * bn + column) * T_cs;
        Lanes y;
        #pragma unroll
        for (int e = 0; e < LANES; ++e) y.lane[e] = v4.lane[e];
        store(to, T_along, count, whole, y);
    }
    {
        Real* const to = T + (place[13] * bk + row) * T_rs + (place[14] * bn + column) * T_cs;
        Lanes y;
        #pragma unroll
        for (int e = 0; e < LANES; ++e) y.lane[e] = v5.lane[e];
        store(to, T_along, count, whole, y);
    }
    {
        Real* const to = T + (place[15] * bk + row) * T_rs + (place[16] * bn + column) * T_cs;
        Lanes y;
        #pragma unroll
        for (int e = 0; e < LANES; ++e) y.lane[e] = v6.lane[e];
        store(to, T_along, count, whole, y);
    }
}

extern "C" __global__ void __launch_bounds__(256)
winograd_expand_l1_linear1_f32(Real* A, Index A_rs, Index A_cs, Real* B, Index B_rs, Index B_cs, Real* S, Index S_rs, Index S_cs, Real* T, Index T_rs, Index T_cs, Index bm, Index bk, Index bn, Index first)
{
    const int* const place = PLACES[first + blockIdx.y];
    switch (place[0]) {
    case 0: part_0(place, A, A_rs, A_cs, B, B_rs, B_cs, S, S_rs, S_cs, T, T_rs, T_cs, bm, bk, bn, first); break;
    case 1: part_1(place, A, A_rs, A_cs, B, B_rs, B_cs, S, S_rs, S_cs, T, T_rs, T_cs, bm, bk, bn, first); break;
    }
}
