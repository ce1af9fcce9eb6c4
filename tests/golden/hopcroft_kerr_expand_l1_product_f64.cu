// hopcroft_kerr_expand_l1_product_f64: 15 product(s) of hopcroft_kerr-expand at 1 level(s), 15 destination(s).
// A launch runs the products from `first` on: blockIdx.y counts them, blockIdx.x the tiles of their results. No two products of a launch share a destination.
typedef double Real;
typedef long long Index;
constexpr int TILE_M = 128, TILE_N = 128, TILE_K = 8;
constexpr int THREADS_M = 16, THREADS_N = 16, THREADS = 256;
constexpr int FRAGMENT = 2;                              // elements of one 16-byte access to shared memory
constexpr int FRAGMENTS_M = 4, FRAGMENTS_N = 4;
constexpr int ROWS = FRAGMENT * FRAGMENTS_M, COLUMNS = FRAGMENT * FRAGMENTS_N;    // of the result, a thread
constexpr int LOADS_A = TILE_M * TILE_K / THREADS, LOADS_B = TILE_K * TILE_N / THREADS;
constexpr int PITCH_A = TILE_M + FRAGMENT, PITCH_B = TILE_N + FRAGMENT;           // padded against bank conflicts

struct alignas(16) Fragment { Real element[FRAGMENT]; };

struct Product { int left_space, left_row, left_column, right_space, right_row, right_column, first, count; };
struct Destination { int space, row, column, first; Real coefficient; };

__device__ const Product PRODUCTS[15] = {
    { 0, 0, 0, 0, 1, 0, 0, 1 },
    { 1, 0, 0, 1, 0, 0, 1, 1 },
    { 0, 1, 0, 0, 0, 1, 2, 1 },
    { 0, 2, 0, 1, 1, 0, 3, 1 },
    { 0, 3, 0, 1, 2, 0, 4, 1 },
    { 0, 4, 0, 1, 3, 0, 5, 1 },
    { 1, 2, 0, 0, 0, 2, 6, 1 },
    { 0, 5, 0, 1, 4, 0, 7, 1 },
    { 1, 1, 1, 1, 5, 0, 8, 1 },
    { 0, 6, 0, 1, 6, 0, 9, 1 },
    { 0, 7, 0, 1, 7, 0, 10, 1 },
    { 1, 2, 1, 0, 1, 2, 11, 1 },
    { 0, 8, 0, 1, 8, 0, 12, 1 },
    { 0, 9, 0, 1, 9, 0, 13, 1 },
    { 0, 10, 0, 1, 10, 0, 14, 1 },
};
__device__ const Destination DESTINATIONS[15] = {
    { 0, 0, 0, 1, Real(1) },
    { 0, 1, 0, 1, Real(1) },
    { 0, 2, 0, 1, Real(1) },
    { 0, 3, 0, 1, Real(1) },
    { 0, 4, 0, 1, Real(1) },
    { 0, 5, 0, 1, Real(1) },
    { 0, 6, 0, 1, Real(1) },
    { 0, 7, 0, 1, Real(1) },
    { 0, 8, 0, 1, Real(1) },
    { 0, 9, 0, 1, Real(1) },
    { 0, 10, 0, 1, Real(1) },
    { 0, 11, 0, 1, Real(1) },
    { 0, 12, 0, 1, Real(1) },
    { 0, 13, 0, 1, Real(1) },
    { 0, 14, 0, 1, Real(1) },
};

// How a thread walks over a tile of `across` x `along` elements in `loads` steps: along the unit stride, so that warps read whole lines.
struct Walk { int across, along, across_step, along_step; };

__device__ __forceinline__ Walk walk(int thread, bool along_first, int across, int along)
{
    Walk w;
    w.along = along_first ? thread % along : thread / across;
    w.across = along_first ? thread / along : thread % across;
    w.along_step = along_first ? 0 : THREADS / across;
    w.across_step = along_first ? THREADS / along : 0;
    return w;
}

extern "C" __global__ void __launch_bounds__(THREADS)
hopcroft_kerr_expand_l1_product_f64(Real* S, Index S_rs, Index S_cs, Real* A, Index A_rs, Index A_cs, Real* B, Index B_rs, Index B_cs, Real* T, Index T_rs, Index T_cs, Real* M, Index M_rs, Index M_cs, Index bm, Index bk, Index bn, Index first, Real alpha, Real beta)
{
    __shared__ alignas(16) Real shared_a[2][TILE_K][PITCH_A];
    __shared__ alignas(16) Real shared_b[2][TILE_K][PITCH_B];

    const Product product = PRODUCTS[first + blockIdx.y];
    const int thread = threadIdx.x;
    const Index a_rs = product.left_space == 0 ? S_rs : A_rs, a_cs = product.left_space == 0 ? S_cs : A_cs;
    const Index b_rs = product.right_space == 0 ? B_rs : T_rs, b_cs = product.right_space == 0 ? B_cs : T_cs;
    const Real* const a = (product.left_space == 0 ? S : A) + product.left_row * bm * a_rs + product.left_column * bk * a_cs;
    const Real* const b = (product.right_space == 0 ? B : T) + product.right_row * bk * b_rs + product.right_column * bn * b_cs;

    const unsigned tiles = unsigned((bn + TILE_N - 1) / TILE_N);
    const Index tile_row = Index(blockIdx.x / tiles) * TILE_M, tile_column = Index(blockIdx.x % tiles) * TILE_N;
    const int rows = bm - tile_row < TILE_M ? int(bm - tile_row) : TILE_M;
    const int columns = bn - tile_column < TILE_N ? int(bn - tile_column) : TILE_N;
    const Walk wa = walk(thread, a_cs == 1, TILE_M, TILE_K), wb = walk(thread, b_rs == 1, TILE_N, TILE_K);
    const Real* next_a_at = a + (tile_row + wa.across) * a_rs + wa.along * a_cs;
    const Real* next_b_at = b + (tile_column + wb.across) * b_cs + wb.along * b_rs;
    const Index a_step = wa.across_step * a_rs + wa.along_step * a_cs, b_step = wb.across_step * b_cs + wb.along_step * b_rs;
    Real next_a[LOADS_A], next_b[LOADS_B];

    // Read the next slice of both operands, of which `depth` elements are left; what lies outside is zero.
    auto fetch = [&](Index depth) {
        const int deep = depth < TILE_K ? int(depth) : TILE_K;
        #pragma unroll
        for (int e = 0; e < LOADS_A; ++e)
            next_a[e] = wa.across + e * wa.across_step < rows && wa.along + e * wa.along_step < deep ? next_a_at[e * a_step] : Real(0);
        #pragma unroll
        for (int e = 0; e < LOADS_B; ++e)
            next_b[e] = wb.across + e * wb.across_step < columns && wb.along + e * wb.along_step < deep ? next_b_at[e * b_step] : Real(0);
        next_a_at += TILE_K * a_cs;
        next_b_at += TILE_K * b_rs;
    };
    auto put = [&](int buffer) {
        #pragma unroll
        for (int e = 0; e < LOADS_A; ++e) shared_a[buffer][wa.along + e * wa.along_step][wa.across + e * wa.across_step] = next_a[e];
        #pragma unroll
        for (int e = 0; e < LOADS_B; ++e) shared_b[buffer][wb.along + e * wb.along_step][wb.across + e * wb.across_step] = next_b[e];
    };

    const int m_thread = thread / THREADS_N, n_thread = thread % THREADS_N;
    Real sum[ROWS][COLUMNS];
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        #pragma unroll
        for (int c = 0; c < COLUMNS; ++c) sum[r][c] = Real(0);
    }

    fetch(bk);
    put(0);
    __syncthreads();
    int buffer = 0;
    for (Index k0 = 0; k0 < bk; k0 += TILE_K) {
        const bool more = k0 + TILE_K < bk;
        if (more) fetch(bk - k0 - TILE_K);
        #pragma unroll
        for (int p = 0; p < TILE_K; ++p) {
            Fragment left[FRAGMENTS_M], right[FRAGMENTS_N];
            #pragma unroll
            for (int f = 0; f < FRAGMENTS_M; ++f)
                left[f] = *reinterpret_cast<const Fragment*>(&shared_a[buffer][p][(f * THREADS_M + m_thread) * FRAGMENT]);
            #pragma unroll
            for (int f = 0; f < FRAGMENTS_N; ++f)
                right[f] = *reinterpret_cast<const Fragment*>(&shared_b[buffer][p][(f * THREADS_N + n_thread) * FRAGMENT]);
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                #pragma unroll
                for (int c = 0; c < COLUMNS; ++c)
                    sum[r][c] += left[r / FRAGMENT].element[r % FRAGMENT] * right[c / FRAGMENT].element[c % FRAGMENT];
            }
        }
        // The other buffer was last read before the barrier of the step before, so one barrier a step is enough.
        if (more) put(buffer ^ 1);
        __syncthreads();
        buffer ^= 1;
    }

    for (int d = product.first; d < product.first + product.count; ++d) {
        const Destination to = DESTINATIONS[d];
        const bool scaled = false;
        const Index c_rs = M_rs, c_cs = M_cs;
        Real* const c = (M) + (to.row * bm + tile_row) * c_rs + (to.column * bn + tile_column) * c_cs;
        const Real factor = scaled ? alpha * to.coefficient : to.coefficient;
        const Real keep = !to.first ? Real(1) : scaled ? beta : Real(0);
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int i = (r / FRAGMENT * THREADS_M + m_thread) * FRAGMENT + r % FRAGMENT;
            #pragma unroll
            for (int s = 0; s < COLUMNS; ++s) {
                const int j = (s / FRAGMENT * THREADS_N + n_thread) * FRAGMENT + s % FRAGMENT;
                if (i >= rows || j >= columns) continue;
                Real* const at = c + i * c_rs + j * c_cs;
                *at = keep == Real(0) ? factor * sum[r][s] : keep * *at + factor * sum[r][s];
            }
        }
    }
}
