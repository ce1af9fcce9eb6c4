// msmes_l1_product_f64: 7 product(s) of msmes at 1 level(s), 12 destination(s).
// A launch runs the products from `first` on: blockIdx.y counts them, blockIdx.x the tiles of their results. No two products of a launch share a destination.
typedef double Real;
typedef long long Index;
constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 16, THREADS = 128;
constexpr int LOADS_A = TILE_M * TILE_K / THREADS, LOADS_B = TILE_K * TILE_N / THREADS;
constexpr int PITCH_A = TILE_M + 4, PITCH_B = TILE_N + 4;    // neighbours in depth lie in different banks

struct Product { int left_space, left_row, left_column, right_space, right_row, right_column, first, count; };
struct Destination { int space, row, column, first; Real coefficient; };

__device__ const Product PRODUCTS[7] = {
    { 0, 1, 0, 0, 0, 0, 0, 2 },
    { 0, 0, 1, 0, 1, 1, 2, 2 },
    { 0, 0, 0, 0, 0, 1, 4, 2 },
    { 0, 1, 1, 0, 1, 0, 6, 2 },
    { 0, 0, 0, 0, 0, 0, 8, 2 },
    { 0, 1, 0, 0, 0, 1, 10, 1 },
    { 0, 0, 1, 0, 1, 0, 11, 1 },
};
__device__ const Destination DESTINATIONS[12] = {
    { 0, 1, 0, 1, Real(1) },
    { 0, 1, 1, 1, Real(-1) },
    { 0, 0, 1, 1, Real(1) },
    { 0, 0, 0, 1, Real(-1) },
    { 0, 0, 1, 0, Real(1) },
    { 0, 1, 1, 0, Real(1) },
    { 0, 0, 0, 0, Real(1) },
    { 0, 1, 0, 0, Real(1) },
    { 0, 0, 0, 0, Real(1) },
    { 0, 1, 1, 0, Real(1) },
    { 0, 1, 1, 0, Real(1) },
    { 0, 0, 0, 0, Real(1) },
};

// Copies of single elements from global to shared memory, which land when they are waited for; what lies outside becomes zero.
struct Copies {
#ifdef __CUDA_ARCH__
    __device__ __forceinline__ void start(Real* to, const Real* from, bool inside)
    {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::
            "r"(unsigned(__cvta_generic_to_shared(to))), "l"(from), "n"(sizeof(Real)), "r"(inside ? int(sizeof(Real)) : 0) : "memory");
    }
    __device__ __forceinline__ void wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
    Real* targets[LOADS_A + LOADS_B];
    Real values[LOADS_A + LOADS_B];
    int count = 0;
    void start(Real* to, const Real* from, bool inside)
    {
        targets[count] = to;
        values[count++] = inside ? *from : Real(0);
    }
    void wait()
    {
        for (int e = 0; e < count; ++e) *targets[e] = values[e];
        count = 0;
    }
#endif
};

// How a thread walks over a tile of `across` x `along` elements: along the unit stride, so that warps read whole lines.
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

constexpr int WARPS_N = 2, WARP_M = TILE_M / 2, WARP_N = TILE_N / WARPS_N;
constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 4;
constexpr int TALL = WARP_M / MMA_M, WIDE = WARP_N / MMA_N;    // matrix instructions of a warp along m and n

// sum (16 x 8) += left (16 x 4) * right (4 x 8), one matrix unit instruction of a warp. With g = lane / 4 and t = lane % 4 a lane holds
// left(g, t) and left(g + 8, t), right(t, g), and the sums (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
__device__ __forceinline__ void multiply_add(double (&sum)[4], const double (&left)[2], double right)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 { %0, %1, %2, %3 }, { %4, %5 }, { %6 }, { %0, %1, %2, %3 };"
        : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3]) : "d"(left[0]), "d"(left[1]), "d"(right));
#elif defined(__CUDA_ARCH__)
    // Before sm_90 the same in two halves: the lanes hold what they hold above.
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 { %0, %1 }, { %2 }, { %3 }, { %0, %1 };"
        : "+d"(sum[0]), "+d"(sum[1]) : "d"(left[0]), "d"(right));
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 { %0, %1 }, { %2 }, { %3 }, { %0, %1 };"
        : "+d"(sum[2]), "+d"(sum[3]) : "d"(left[1]), "d"(right));
#else
    // The portable body: lanes show their operands to the warp through shared memory.
    __shared__ double shown[THREADS][3];
    const int thread = threadIdx.x, warp = thread - thread % 32, g = thread % 32 / 4, t = thread % 4;
    shown[thread][0] = left[0], shown[thread][1] = left[1], shown[thread][2] = right;
    __syncwarp();
    for (int p = 0; p < MMA_K; ++p)
        for (int e = 0; e < 4; ++e) sum[e] = fma(shown[warp + g * 4 + p][e / 2], shown[warp + (2 * t + e % 2) * 4 + p][2], sum[e]);
    __syncwarp();
#endif
}

extern "C" __global__ void __launch_bounds__(128)
msmes_l1_product_f64(Real* A, Index A_rs, Index A_cs, Real* B, Index B_rs, Index B_cs, Real* C, Index C_rs, Index C_cs, Index bm, Index bk, Index bn, Index first, Real alpha, Real beta)
{
    // Two slices of each operand: 51200 bytes.
    extern __shared__ __align__(16) unsigned char shared[];
    Real (*const shared_a)[TILE_K][PITCH_A] = reinterpret_cast<Real (*)[TILE_K][PITCH_A]>(shared);
    Real (*const shared_b)[TILE_K][PITCH_B] = reinterpret_cast<Real (*)[TILE_K][PITCH_B]>(shared_a + 2);

    const Product product = PRODUCTS[first + blockIdx.y];
    const int thread = threadIdx.x;
    const Index a_rs = A_rs, a_cs = A_cs;
    const Index b_rs = B_rs, b_cs = B_cs;
    const Real* const a = (A) + product.left_row * bm * a_rs + product.left_column * bk * a_cs;
    const Real* const b = (B) + product.right_row * bk * b_rs + product.right_column * bn * b_cs;

    const unsigned tiles = unsigned((bn + TILE_N - 1) / TILE_N);
    const Index tile_row = Index(blockIdx.x / tiles) * TILE_M, tile_column = Index(blockIdx.x % tiles) * TILE_N;
    const int rows = bm - tile_row < TILE_M ? int(bm - tile_row) : TILE_M;
    const int columns = bn - tile_column < TILE_N ? int(bn - tile_column) : TILE_N;

    const Walk wa = walk(thread, a_cs == 1, TILE_M, TILE_K), wb = walk(thread, b_rs == 1, TILE_N, TILE_K);
    const Real* next_a = a + (tile_row + wa.across) * a_rs + wa.along * a_cs;
    const Real* next_b = b + (tile_column + wb.across) * b_cs + wb.along * b_rs;
    const Index a_step = wa.across_step * a_rs + wa.along_step * a_cs, b_step = wb.across_step * b_cs + wb.along_step * b_rs;
    Copies copies;

    // Start copying the next slice of both operands, of which `depth` elements are left. Nearly all slices lie inside the operands as a
    // whole, and for those nothing is compared.
    const bool whole = rows == TILE_M && columns == TILE_N;
    auto copy = [&](int buffer, int deep, bool checked) {
        const Real *from_a = next_a, *from_b = next_b;
        #pragma unroll
        for (int e = 0; e < LOADS_A; ++e, from_a += a_step) {
            const int i = wa.across + e * wa.across_step, p = wa.along + e * wa.along_step;
            const bool inside = !checked || (i < rows && p < deep);
            copies.start(&shared_a[buffer][p][i], inside ? from_a : a, inside);
        }
        #pragma unroll
        for (int e = 0; e < LOADS_B; ++e, from_b += b_step) {
            const int j = wb.across + e * wb.across_step, p = wb.along + e * wb.along_step;
            const bool inside = !checked || (j < columns && p < deep);
            copies.start(&shared_b[buffer][p][j], inside ? from_b : b, inside);
        }
    };
    auto fetch = [&](int buffer, Index depth) {
        if (whole && depth >= TILE_K) copy(buffer, TILE_K, false);
        else copy(buffer, depth < TILE_K ? int(depth) : TILE_K, true);
        next_a += TILE_K * a_cs;
        next_b += TILE_K * b_rs;
    };

    const int lane = thread % 32, group = lane / 4, member = lane % 4;
    const int warp_row = thread / 32 / WARPS_N * WARP_M, warp_column = thread / 32 % WARPS_N * WARP_N;
    Real sum[TALL][WIDE][4] = {};

    int buffer = 0;
    if (bk > 0) fetch(buffer, bk);
    for (Index k0 = 0; k0 < bk; k0 += TILE_K) {
        // This slice has landed, for every thread, and every thread is done with the slice before it, whose buffer is filled next.
        copies.wait();
        __syncthreads();
        if (k0 + TILE_K < bk) fetch(buffer ^ 1, bk - k0 - TILE_K);
        #pragma unroll
        for (int p = 0; p < TILE_K; p += MMA_K) {
            Real left[TALL][2], right[WIDE];
            #pragma unroll
            for (int r = 0; r < TALL; ++r) {
                left[r][0] = shared_a[buffer][p + member][warp_row + r * MMA_M + group];
                left[r][1] = shared_a[buffer][p + member][warp_row + r * MMA_M + group + 8];
            }
            #pragma unroll
            for (int s = 0; s < WIDE; ++s) right[s] = shared_b[buffer][p + member][warp_column + s * MMA_N + group];
            #pragma unroll
            for (int r = 0; r < TALL; ++r) {
                #pragma unroll
                for (int s = 0; s < WIDE; ++s) multiply_add(sum[r][s], left[r], right[s]);
            }
        }
        buffer ^= 1;
    }

    for (int d = product.first; d < product.first + product.count; ++d) {
        const Destination to = DESTINATIONS[d];
        const bool scaled = true;
        const Index c_rs = C_rs, c_cs = C_cs;
        Real* const c = (C) + (to.row * bm + tile_row) * c_rs + (to.column * bn + tile_column) * c_cs;
        const Real factor = scaled ? alpha * to.coefficient : to.coefficient;
        const Real keep = !to.first ? Real(1) : scaled ? beta : Real(0);
        auto add = [&](int i, int j, Real value) {
            if (i >= rows || j >= columns) return;
            Real* const at = c + i * c_rs + j * c_cs;
            *at = keep == Real(0) ? factor * value : keep * *at + factor * value;
        };
        #pragma unroll
        for (int r = 0; r < TALL; ++r) {
            #pragma unroll
            for (int s = 0; s < WIDE; ++s) {
                const int i = warp_row + r * MMA_M + group, j = warp_column + s * MMA_N + 2 * member;
                #pragma unroll
                for (int e = 0; e < 4; ++e) add(i + e / 2 * 8, j + e % 2, sum[r][s][e]);
            }
        }
    }
}
