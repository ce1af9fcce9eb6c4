// winograd_expand_l1_linear2_f32: 1 map(s) of winograd-expand at 1 level(s), at 1 place(s).
// Each place is one independent part of the stage: its blocks are read once, mapped in registers, and the changed ones written once.
#ifdef REAL    // another type of elements, for who compiles this text for another purpose
typedef REAL Real;
#define NEAREST(number, exact) Real(exact)
#else
typedef float Real;
#define NEAREST(number, exact) Real(number)    // of a coefficient that the type does not hold
#endif
typedef long long Index;

// Neighbouring elements of a block, which a thread reads, maps and writes together.
template <int LANES> struct alignas(LANES * sizeof(Real)) Lanes { Real lane[LANES]; };

// {part, then grid row and column where it stands in each of its spaces}
__device__ const int PLACES[1][5] = {
    { 0, 0, 0, 0, 0 },
};

// The same value, of which the compiler knows nothing: it would compute addresses early, and keep them in registers that values need.
__device__ __forceinline__ Index opaque(Index value)
{
#ifdef __CUDA_ARCH__
    asm volatile("" : "+l"(value));
#endif
    return value;
}

// Whether the rows (or columns) of a space can be accessed in whole lanes.
__device__ __forceinline__ bool is_aligned(const Real* space, Index along, Index across)
{
    return along == 1 && across % 4 == 0 && reinterpret_cast<unsigned long long>(space) % sizeof(Lanes<4>) == 0;
}

template <int LANES> __device__ __forceinline__ Lanes<LANES> load(const Real* from) { return *reinterpret_cast<const Lanes<LANES>*>(from); }
template <int LANES> __device__ __forceinline__ void store(Real* to, const Lanes<LANES>& lanes) { *reinterpret_cast<Lanes<LANES>*>(to) = lanes; }

// Add to factor times what is there; with factor = 0 that is not read.
template <int LANES> __device__ __forceinline__ void store(Real* to, Lanes<LANES> lanes, Real factor)
{
    if (factor != Real(0)) {
        const Lanes<LANES> old = load<LANES>(to);
        #pragma unroll
        for (int e = 0; e < LANES; ++e) lanes.lane[e] += factor * old.lane[e];
    }
    store<LANES>(to, lanes);
}

// 7 block(s) read, 4 written, 7 addition(s) an element, at most 7 values live.
__device__ __forceinline__ void map_0_by_4(Real* P_at, Index P_down, Index P_right, Real* C_at, Index C_down, Index C_right, Real beta)
{
    const Lanes<4> v1 = load<4>(P_at + 1 * opaque(P_down));
    const Lanes<4> v0 = load<4>(P_at);
    const Lanes<4> v5 = load<4>(P_at + 5 * opaque(P_down));
    const Lanes<4> v6 = load<4>(P_at + 6 * opaque(P_down));
    const Lanes<4> v3 = load<4>(P_at + 3 * opaque(P_down));
    const Lanes<4> v4 = load<4>(P_at + 4 * opaque(P_down));
    const Lanes<4> v2 = load<4>(P_at + 2 * opaque(P_down));
    Lanes<4> v10;
    v10.lane[0] = v0.lane[0] + v1.lane[0];
    v10.lane[1] = v0.lane[1] + v1.lane[1];
    v10.lane[2] = v0.lane[2] + v1.lane[2];
    v10.lane[3] = v0.lane[3] + v1.lane[3];
    store<4>(C_at, v10, beta);
    Lanes<4> v7;
    v7.lane[0] = v0.lane[0] + v5.lane[0];
    v7.lane[1] = v0.lane[1] + v5.lane[1];
    v7.lane[2] = v0.lane[2] + v5.lane[2];
    v7.lane[3] = v0.lane[3] + v5.lane[3];
    Lanes<4> v8;
    v8.lane[0] = v6.lane[0] + v7.lane[0];
    v8.lane[1] = v6.lane[1] + v7.lane[1];
    v8.lane[2] = v6.lane[2] + v7.lane[2];
    v8.lane[3] = v6.lane[3] + v7.lane[3];
    Lanes<4> v12;
    v12.lane[0] = -v3.lane[0] + v8.lane[0];
    v12.lane[1] = -v3.lane[1] + v8.lane[1];
    v12.lane[2] = -v3.lane[2] + v8.lane[2];
    v12.lane[3] = -v3.lane[3] + v8.lane[3];
    store<4>(C_at + 1 * opaque(C_down), v12, beta);
    Lanes<4> v13;
    v13.lane[0] = v4.lane[0] + v8.lane[0];
    v13.lane[1] = v4.lane[1] + v8.lane[1];
    v13.lane[2] = v4.lane[2] + v8.lane[2];
    v13.lane[3] = v4.lane[3] + v8.lane[3];
    store<4>(C_at + 1 * opaque(C_down) + 1 * opaque(C_right), v13, beta);
    Lanes<4> v9;
    v9.lane[0] = v4.lane[0] + v7.lane[0];
    v9.lane[1] = v4.lane[1] + v7.lane[1];
    v9.lane[2] = v4.lane[2] + v7.lane[2];
    v9.lane[3] = v4.lane[3] + v7.lane[3];
    Lanes<4> v11;
    v11.lane[0] = v2.lane[0] + v9.lane[0];
    v11.lane[1] = v2.lane[1] + v9.lane[1];
    v11.lane[2] = v2.lane[2] + v9.lane[2];
    v11.lane[3] = v2.lane[3] + v9.lane[3];
    store<4>(C_at + 1 * opaque(C_right), v11, beta);
}

// The same for one element, where blocks do not lie in whole lanes.
__device__ __forceinline__ void map_0_by_1(Real* P_at, Index P_down, Index P_right, Real* C_at, Index C_down, Index C_right, Real beta)
{
    const Lanes<1> v1 = load<1>(P_at + 1 * opaque(P_down));
    const Lanes<1> v0 = load<1>(P_at);
    const Lanes<1> v5 = load<1>(P_at + 5 * opaque(P_down));
    const Lanes<1> v6 = load<1>(P_at + 6 * opaque(P_down));
    const Lanes<1> v3 = load<1>(P_at + 3 * opaque(P_down));
    const Lanes<1> v4 = load<1>(P_at + 4 * opaque(P_down));
    const Lanes<1> v2 = load<1>(P_at + 2 * opaque(P_down));
    Lanes<1> v10;
    v10.lane[0] = v0.lane[0] + v1.lane[0];
    store<1>(C_at, v10, beta);
    Lanes<1> v7;
    v7.lane[0] = v0.lane[0] + v5.lane[0];
    Lanes<1> v8;
    v8.lane[0] = v6.lane[0] + v7.lane[0];
    Lanes<1> v12;
    v12.lane[0] = -v3.lane[0] + v8.lane[0];
    store<1>(C_at + 1 * opaque(C_down), v12, beta);
    Lanes<1> v13;
    v13.lane[0] = v4.lane[0] + v8.lane[0];
    store<1>(C_at + 1 * opaque(C_down) + 1 * opaque(C_right), v13, beta);
    Lanes<1> v9;
    v9.lane[0] = v4.lane[0] + v7.lane[0];
    Lanes<1> v11;
    v11.lane[0] = v2.lane[0] + v9.lane[0];
    store<1>(C_at + 1 * opaque(C_right), v11, beta);
}

__device__ __forceinline__ void part_0(const int* place, Real* C, Index C_rs, Index C_cs, Real* P, Index P_rs, Index P_cs, Index bm, Index bn, Index first, Real beta)
{
    constexpr int LANES = 4;
    const bool by_row = C_cs == 1;
    const Index slow = by_row ? bm : bn;
    const Index fast = by_row ? bn : bm;
    // One tile of 8 x 32 threads a block, tiles along the unit stride first.
    const unsigned tiles = unsigned((fast + blockDim.x * LANES - 1) / (blockDim.x * LANES));
    const Index i = Index(blockIdx.x / tiles) * blockDim.y + threadIdx.y;
    bool whole = fast % LANES == 0;
    const Index P_along = by_row ? P_cs : P_rs;
    whole = whole && is_aligned(P, P_along, by_row ? P_rs : P_cs);
    const Index C_along = by_row ? C_cs : C_rs;
    whole = whole && is_aligned(C, C_along, by_row ? C_rs : C_cs);
    // Neighbouring threads access neighbours: whole lanes, or else single elements, whose next ones follow after those of the others.
    const Index j = Index(blockIdx.x % tiles) * blockDim.x * LANES + threadIdx.x * (whole ? LANES : 1);
    if (i >= slow || j >= fast) return;
    const Index row = by_row ? i : j, column = by_row ? j : i;
    const Index P_down = bm * P_rs, P_right = bn * P_cs;
    Real* const P_at = P + place[1] * P_down + place[2] * P_right + row * P_rs + column * P_cs;
    const Index C_down = bm * C_rs, C_right = bn * C_cs;
    Real* const C_at = C + place[3] * C_down + place[4] * C_right + row * C_rs + column * C_cs;
    if (whole) {
        map_0_by_4(P_at, P_down, P_right, C_at, C_down, C_right, beta);
        return;
    }
    #pragma unroll 1
    for (Index step = 0; step < LANES * Index(blockDim.x) && j + step < fast; step += blockDim.x) map_0_by_1(P_at + step * P_along, P_down, P_right, C_at + step * C_along, C_down, C_right, beta);
}

extern "C" __global__ void __launch_bounds__(256)
winograd_expand_l1_linear2_f32(Real* C, Index C_rs, Index C_cs, Real* P, Index P_rs, Index P_cs, Index bm, Index bn, Index first, Real beta)
{
    const int* const place = PLACES[first + blockIdx.y];
    switch (place[0]) {
    case 0: part_0(place, C, C_rs, C_cs, P, P_rs, P_cs, bm, bn, first, beta); break;
    }
}
