// msmes_l1_linear3_f64: 2 map(s) of msmes at 1 level(s), at 2 place(s).
// Each place is one independent part of the stage: its blocks are read once, mapped in registers, and the changed ones written once.
#ifdef REAL    // another type of elements, for who compiles this text for another purpose
typedef REAL Real;
#define NEAREST(number, exact) Real(exact)
#else
typedef double Real;
#define NEAREST(number, exact) Real(number)    // of a coefficient that the type does not hold
#endif
typedef long long Index;

// Neighbouring elements of a block, which a thread reads, maps and writes together.
template <int LANES> struct alignas(LANES * sizeof(Real)) Lanes { Real lane[LANES]; };

// {part, then grid row and column where it stands in each of its spaces}
__device__ const int PLACES[2][3] = {
    { 0, 0, 0 },
    { 1, 0, 0 },
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
    return along == 1 && across % 2 == 0 && reinterpret_cast<unsigned long long>(space) % sizeof(Lanes<2>) == 0;
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

// 4 block(s) read, 3 written, 3 addition(s) an element, at most 4 values live.
__device__ __forceinline__ void map_0_by_2(Real* A_at, Index A_down, Index A_right)
{
    const Lanes<2> v2 = load<2>(A_at + 1 * opaque(A_right));
    const Lanes<2> v1 = load<2>(A_at + 1 * opaque(A_down) + 1 * opaque(A_right));
    const Lanes<2> v0 = load<2>(A_at);
    const Lanes<2> v3 = load<2>(A_at + 1 * opaque(A_down));
    Lanes<2> v6;
    v6.lane[0] = v1.lane[0] + v2.lane[0];
    v6.lane[1] = v1.lane[1] + v2.lane[1];
    store<2>(A_at + 1 * opaque(A_right), v6);
    Lanes<2> v4;
    v4.lane[0] = v0.lane[0] - v1.lane[0];
    v4.lane[1] = v0.lane[1] - v1.lane[1];
    store<2>(A_at, v4);
    Lanes<2> v7;
    v7.lane[0] = v3.lane[0] + v4.lane[0];
    v7.lane[1] = v3.lane[1] + v4.lane[1];
    store<2>(A_at + 1 * opaque(A_down), v7);
}

// The same for one element, where blocks do not lie in whole lanes.
__device__ __forceinline__ void map_0_by_1(Real* A_at, Index A_down, Index A_right)
{
    const Lanes<1> v2 = load<1>(A_at + 1 * opaque(A_right));
    const Lanes<1> v1 = load<1>(A_at + 1 * opaque(A_down) + 1 * opaque(A_right));
    const Lanes<1> v0 = load<1>(A_at);
    const Lanes<1> v3 = load<1>(A_at + 1 * opaque(A_down));
    Lanes<1> v6;
    v6.lane[0] = v1.lane[0] + v2.lane[0];
    store<1>(A_at + 1 * opaque(A_right), v6);
    Lanes<1> v4;
    v4.lane[0] = v0.lane[0] - v1.lane[0];
    store<1>(A_at, v4);
    Lanes<1> v7;
    v7.lane[0] = v3.lane[0] + v4.lane[0];
    store<1>(A_at + 1 * opaque(A_down), v7);
}

__device__ __forceinline__ void part_0(const int* place, Real* A, Index A_rs, Index A_cs, Real* B, Index B_rs, Index B_cs, Index bm, Index bk, Index bn, Index first)
{
    constexpr int LANES = 2;
    const bool by_row = A_cs == 1;
    const Index slow = by_row ? bm : bk;
    const Index fast = by_row ? bk : bm;
    // One tile of 8 x 32 threads a block, tiles along the unit stride first.
    const unsigned tiles = unsigned((fast + blockDim.x * LANES - 1) / (blockDim.x * LANES));
    const Index i = Index(blockIdx.x / tiles) * blockDim.y + threadIdx.y;
    bool whole = fast % LANES == 0;
    const Index A_along = by_row ? A_cs : A_rs;
    whole = whole && is_aligned(A, A_along, by_row ? A_rs : A_cs);
    // Neighbouring threads access neighbours: whole lanes, or else single elements, whose next ones follow after those of the others.
    const Index j = Index(blockIdx.x % tiles) * blockDim.x * LANES + threadIdx.x * (whole ? LANES : 1);
    if (i >= slow || j >= fast) return;
    const Index row = by_row ? i : j, column = by_row ? j : i;
    const Index A_down = bm * A_rs, A_right = bk * A_cs;
    Real* const A_at = A + place[1] * A_down + place[2] * A_right + row * A_rs + column * A_cs;
    if (whole) {
        map_0_by_2(A_at, A_down, A_right);
        return;
    }
    #pragma unroll 1
    for (Index step = 0; step < LANES * Index(blockDim.x) && j + step < fast; step += blockDim.x) map_0_by_1(A_at + step * A_along, A_down, A_right);
}

// 4 block(s) read, 3 written, 3 addition(s) an element, at most 4 values live.
__device__ __forceinline__ void map_1_by_2(Real* B_at, Index B_down, Index B_right)
{
    const Lanes<2> v3 = load<2>(B_at + 1 * opaque(B_down));
    const Lanes<2> v1 = load<2>(B_at + 1 * opaque(B_down) + 1 * opaque(B_right));
    const Lanes<2> v0 = load<2>(B_at);
    const Lanes<2> v2 = load<2>(B_at + 1 * opaque(B_right));
    Lanes<2> v7;
    v7.lane[0] = -v1.lane[0] + v3.lane[0];
    v7.lane[1] = -v1.lane[1] + v3.lane[1];
    store<2>(B_at + 1 * opaque(B_down), v7);
    Lanes<2> v4;
    v4.lane[0] = v0.lane[0] - v1.lane[0];
    v4.lane[1] = v0.lane[1] - v1.lane[1];
    store<2>(B_at, v4);
    Lanes<2> v6;
    v6.lane[0] = v2.lane[0] - v4.lane[0];
    v6.lane[1] = v2.lane[1] - v4.lane[1];
    store<2>(B_at + 1 * opaque(B_right), v6);
}

// The same for one element, where blocks do not lie in whole lanes.
__device__ __forceinline__ void map_1_by_1(Real* B_at, Index B_down, Index B_right)
{
    const Lanes<1> v3 = load<1>(B_at + 1 * opaque(B_down));
    const Lanes<1> v1 = load<1>(B_at + 1 * opaque(B_down) + 1 * opaque(B_right));
    const Lanes<1> v0 = load<1>(B_at);
    const Lanes<1> v2 = load<1>(B_at + 1 * opaque(B_right));
    Lanes<1> v7;
    v7.lane[0] = -v1.lane[0] + v3.lane[0];
    store<1>(B_at + 1 * opaque(B_down), v7);
    Lanes<1> v4;
    v4.lane[0] = v0.lane[0] - v1.lane[0];
    store<1>(B_at, v4);
    Lanes<1> v6;
    v6.lane[0] = v2.lane[0] - v4.lane[0];
    store<1>(B_at + 1 * opaque(B_right), v6);
}

__device__ __forceinline__ void part_1(const int* place, Real* A, Index A_rs, Index A_cs, Real* B, Index B_rs, Index B_cs, Index bm, Index bk, Index bn, Index first)
{
    constexpr int LANES = 2;
    const bool by_row = B_cs == 1;
    const Index slow = by_row ? bk : bn;
    const Index fast = by_row ? bn : bk;
    // One tile of 8 x 32 threads a block, tiles along the unit stride first.
    const unsigned tiles = unsigned((fast + blockDim.x * LANES - 1) / (blockDim.x * LANES));
    const Index i = Index(blockIdx.x / tiles) * blockDim.y + threadIdx.y;
    bool whole = fast % LANES == 0;
    const Index B_along = by_row ? B_cs : B_rs;
    whole = whole && is_aligned(B, B_along, by_row ? B_rs : B_cs);
    // Neighbouring threads access neighbours: whole lanes, or else single elements, whose next ones follow after those of the others.
    const Index j = Index(blockIdx.x % tiles) * blockDim.x * LANES + threadIdx.x * (whole ? LANES : 1);
    if (i >= slow || j >= fast) return;
    const Index row = by_row ? i : j, column = by_row ? j : i;
    const Index B_down = bk * B_rs, B_right = bn * B_cs;
    Real* const B_at = B + place[1] * B_down + place[2] * B_right + row * B_rs + column * B_cs;
    if (whole) {
        map_1_by_2(B_at, B_down, B_right);
        return;
    }
    #pragma unroll 1
    for (Index step = 0; step < LANES * Index(blockDim.x) && j + step < fast; step += blockDim.x) map_1_by_1(B_at + step * B_along, B_down, B_right);
}

extern "C" __global__ void __launch_bounds__(256)
msmes_l1_linear3_f64(Real* A, Index A_rs, Index A_cs, Real* B, Index B_rs, Index B_cs, Index bm, Index bk, Index bn, Index first)
{
    const int* const place = PLACES[first + blockIdx.y];
    switch (place[0]) {
    case 0: part_0(place, A, A_rs, A_cs, B, B_rs, B_cs, bm, bk, bn, first); break;
    case 1: part_1(place, A, A_rs, A_cs, B, B_rs, B_cs, bm, bk, bn, first); break;
    }
}
