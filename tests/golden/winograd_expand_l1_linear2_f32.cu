// winograd_expand_l1_linear2_f32: 1 map(s) of winograd-expand at 1 level(s), at 1 place(s).
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
__device__ const int PLACES[1][23] = {
    { 0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 0, 0, 0, 1, 1, 0, 1, 1 },
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

// 7 block(s) read, 4 written, 7 addition(s) an element.
__device__ __forceinline__ void part_0(const int* place, Real* C, Index C_rs, Index C_cs, Real* M, Index M_rs, Index M_cs, Index bm, Index bn, Index first, Real beta)
{
    const bool by_row = C_cs == 1;
    const Index slow = by_row ? bm : bn;
    const Index fast = by_row ? bn : bm;
    bool aligned = fast % LANES == 0;
    const Index M_along = by_row ? M_cs : M_rs;
    aligned = aligned && is_aligned(M, M_along, by_row ? M_rs : M_cs);
    const Index C_along = by_row ? C_cs : C_rs;
    aligned = aligned && is_aligned(C, C_along, by_row ? C_rs : C_cs);
    // One tile of 8 x 32 threads a block, tiles along the unit stride first.
    const unsigned tiles = unsigned((fast + blockDim.x * LANES - 1) / (blockDim.x * LANES));
    const Index i = Index(blockIdx.x / tiles) * blockDim.y + threadIdx.y;
    const Index j = (Index(blockIdx.x % tiles) * blockDim.x + threadIdx.x) * LANES;
    if (i >= slow || j >= fast) return;
    const Index row = by_row ? i : j, column = by_row ? j : i;
    const int count = fast - j < LANES ? int(fast - j) : LANES;
    const bool whole = aligned && count == LANES;
    const Lanes v0 = load(M + (place[1] * bm + row) * M_rs + (place[2] * bn + column) * M_cs, M_along, count, whole);
    const Lanes v1 = load(M + (place[3] * bm + row) * M_rs + (place[4] * bn + column) * M_cs, M_along, count, whole);
    const Lanes v2 = load(M + (place[5] * bm + row) * M_rs + (place[6] * bn + column) * M_cs, M_along, count, whole);
    const Lanes v3 = load(M + (place[7] * bm + row) * M_rs + (place[8] * bn + column) * M_cs, M_along, count, whole);
    const Lanes v4 = load(M + (place[9] * bm + row) * M_rs + (place[10] * bn + column) * M_cs, M_along, count, whole);
    const Lanes v5 = load(M + (place[11] * bm + row) * M_rs + (place[12] * bn + column) * M_cs, M_along, count, whole);
    const Lanes v6 = load(M + (place[13] * bm + row) * M_rs + (place[14] * bn + column) * M_cs, M_along, count, whole);
    Lanes v7;
    #pragma unroll
    for (int e = 0; e < LANES; ++e) v7.lane[e] = v0.lane[e] + v5.lane[e];
    Lanes v8;
    #pragma unroll
    for (int e = 0; e < LANES; ++e) v8.lane[e] = v6.lane[e] + v7.lane[e];
    Lanes v9;
    #pragma unroll
    for (int e = 0; e < LANES; ++e) v9.lane[e] = v4.lane[e] + v7.lane[e];
    {
        Real* const to = C + (place[15] * bm + row) * C_rs + (place[16] * bn + column) * C_cs;
        Lanes y;
        if (beta != Real(0)) y = load(to, C_along, count, whole);
        #pragma unroll
        for (int e = 0; e < LANES; ++e) {
            const Real value = v0.lane[e] + v1.lane[e];
            y.lane[e] = beta == Real(0) ? value : value + beta * y.lane[e];
        }
        store(to, C_along, count, whole, y);
    }
    {
        Real* const to = C + (place[17] * bm + row) * C_rs + (place[18] * bn + column) * C_cs;
        Lanes y;
        if (beta != Real(0)) y = load(to, C_along, count, whole);
        #pragma unroll
        for (int e = 0; e < LANES; ++e) {
            const Real value = v2.lane[e] + v9.lane[e];
            y.lane[e] = beta == Real(0) ? value : value + beta * y.lane[e];
        }
        store(to, C_along, count, whole, y);
    }
    {
        Real* const to = C + (place[19] * bm + row) * C_rs + (place[20] * bn + column) * C_cs;
        Lanes y;
        if (beta != Real(0)) y = load(to, C_along, count, whole);
        #pragma unroll
        for (int e = 0; e < LANES; ++e) {
            const Real value = -v3.lane[e] + v8.lane[e];
            y.lane[e] = beta == Real(0) ? value : value + beta * y.lane[e];
        }
        store(to, C_along, count, whole, y);
    }
    {
        Real* const to = C + (place[21] * bm + row) * C_rs + (place[22] * bn + column) * C_cs;
        Lanes y;
        if (beta != Real(0)) y = load(to, C_along, count, whole);
        #pragma unroll
        for (int e = 0; e < LANES; ++e) {
            const Real value = v4.lane[e] + v8.lane[e];
            y.lane[e] = beta == Real(0) ? value : value + beta * y.lane[e];
        }
        store(to, C_along, count, whole, y);
    }
}

extern "C" __global__ void __launch_bounds__(256)
winograd_expand_l1_linear2_f32(Real* C, Index C_rs, Index C_cs, Real* M, Index M_rs, Index M_cs, Index bm, Index bn, Index first, Real beta)
{
    const int* const place = PLACES[first + blockIdx.y];
    switch (place[0]) {
    case 0: part_0(place, C, C_rs, C_cs, M, M_rs, M_cs, bm, bn, first, beta); break;
    }
}
