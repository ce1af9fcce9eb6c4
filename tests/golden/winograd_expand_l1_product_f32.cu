// winograd_expand_l1_product_f32: 7 product(s) of winograd-expand at 1 level(s), 7 destination(s).
// A launch runs the products from `first` on: blockIdx.y counts them, blockIdx.x the tiles of their results. No two products of a launch share a destination.
#ifdef REAL    // another type of elements, for who compiles this text for another purpose
typedef REAL Real;
#define NEAREST(number, exact) Real(exact)
#else
typedef float Real;
#define NEAREST(number, exact) Real(number)    // of a coefficient that the type does not hold
#endif
typedef long long Index;
constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 16, THREADS = 128;
constexpr int STAGES = 3;    // slices of depth TILE_K that are under way at once
constexpr int LANES = 4;     // elements of a copy of 16 bytes
static_assert(STAGES > 1, "a slice would be filled while it is read");
constexpr int BAND = 8;      // rows of tiles that are walked down before the next column: their operands stay in the L2 cache

struct Product { int left_space, left_row, left_column, right_space, right_row, right_column, first, count; };
struct Destination { int space, row, column, first; Real coefficient; };
struct alignas(16) Lanes { Real element[LANES]; };
enum class Rows { ANY, UNEVEN, EVEN };    // of operands: with any strides; neighbours side by side; that, and at multiples of 16 bytes

__device__ const Product PRODUCTS[7] = {
    { 0, 0, 0, 0, 0, 0, 0, 1 },
    { 0, 0, 1, 0, 1, 0, 1, 1 },
    { 1, 0, 0, 0, 1, 1, 2, 1 },
    { 0, 1, 1, 1, 0, 0, 3, 1 },
    { 1, 1, 0, 1, 1, 0, 4, 1 },
    { 1, 2, 0, 1, 2, 0, 5, 1 },
    { 1, 3, 0, 1, 3, 0, 6, 1 },
};
__device__ const Destination DESTINATIONS[7] = {
    { 0, 0, 0, 1, Real(1) },
    { 0, 1, 0, 1, Real(1) },
    { 0, 2, 0, 1, Real(1) },
    { 0, 3, 0, 1, Real(1) },
    { 0, 4, 0, 1, Real(1) },
    { 0, 5, 0, 1, Real(1) },
    { 0, 6, 0, 1, Real(1) },
};

// Slices in shared memory, both by depth, so that a thread reads neighbours; the rows of A are LANES longer, which spreads its copies.
constexpr int CHUNK_A = 1, PITCH_A = TILE_M + LANES, SLICE_A = TILE_K * PITCH_A, SLICE_B = TILE_K * TILE_N;
constexpr int PERIOD_A = 1, PERIOD_B = 1;
constexpr bool TAKES_UNEVEN = false;    // what is copied element by element anyway
template <Rows> __device__ __forceinline__ int slot_a(int row, int depth) { return depth * PITCH_A + row; }
template <Rows> __device__ __forceinline__ int slot_b(int depth, int column) { return depth * TILE_N + column; }

// How threads share the copying of a slice: each takes CHUNK_A elements of A along its depth, and LANES elements of B along its rows. The
// places of its copies repeat after PERIOD_A rows of A and PERIOD_B depths of B, but for a distance that is known here.
constexpr int CHUNKS_A = TILE_K / CHUNK_A, CHUNKS_B = TILE_N / LANES, HOP_A = THREADS / CHUNKS_A, HOP_B = THREADS / CHUNKS_B;
constexpr int LOADS_A = TILE_M / HOP_A, LOADS_B = TILE_K / HOP_B;
static_assert(THREADS % CHUNKS_A == 0 && TILE_M % HOP_A == 0 && THREADS % CHUNKS_B == 0 && TILE_K % HOP_B == 0, "the tile is not shared evenly");
constexpr int PLACES_A = HOP_A < PERIOD_A ? PERIOD_A / HOP_A : 1, PLACES_B = HOP_B < PERIOD_B ? PERIOD_B / HOP_B : 1;
static_assert(HOP_A * PLACES_A % PERIOD_A == 0 && HOP_B * PLACES_B % PERIOD_B == 0, "places do not repeat");

// A place in shared memory, as an instruction takes it.
#ifdef __CUDA_ARCH__
typedef unsigned Place;
__device__ __forceinline__ Place place_of(Real* memory) { return unsigned(__cvta_generic_to_shared(memory)); }
__device__ __forceinline__ Place behind(Place place, int elements) { return place + elements * int(sizeof(Real)); }
#else
typedef Real* Place;
inline Place place_of(Real* memory) { return memory; }
inline Place behind(Place place, int elements) { return place + elements; }
#endif

// Copies from global to shared memory, in groups that land in their order when they are waited for. Of COUNT elements those from `inside` on
// become zero; the `unread` first ones, which lie before a row in the 16 bytes that it begins in, may become anything.
struct Copies {
#ifdef __CUDA_ARCH__
    template <int COUNT> __device__ __forceinline__ void start(Place to, const Real* from, int inside, int = 0)
    {
        const unsigned at = to;
        const int bytes = int(sizeof(Real)) * inside;
        if (COUNT == LANES) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at), "l"(from), "r"(bytes) : "memory");
        else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" :: "r"(at), "l"(from), "n"(sizeof(Real)), "r"(bytes) : "memory");
    }
    __device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
    __device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory"); }
#else
    Real* targets[STAGES][LOADS_A * (CHUNK_A + LANES) + LOADS_B * 2 * LANES];
    Real values[STAGES][LOADS_A * (CHUNK_A + LANES) + LOADS_B * 2 * LANES];
    int counts[STAGES] = {}, newest = 0;
    template <int COUNT> void start(Place to, const Real* from, int inside, int unread = 0)
    {
        for (int x = 0; x < COUNT; ++x) {
            targets[newest][counts[newest]] = to + x;
            values[newest][counts[newest]++] = x < unread ? Real(1) : x < inside ? from[x] : Real(0);    // wrong, if it is read
        }
    }
    void commit() { newest = (newest + 1) % STAGES; }
    void wait()    // the newest STAGES - 2 groups may go on: of the ring, the two others land
    {
        for (int group : { newest, (newest + 1) % STAGES }) {
            for (int e = 0; e < counts[group]; ++e) *targets[group][e] = values[group][e];
            counts[group] = 0;
        }
    }
#endif
};

// How many elements after a multiple of 16 bytes this one lies.
__device__ __forceinline__ int past_lanes(const Real* element) { return int(reinterpret_cast<unsigned long long>(element) % sizeof(Lanes) / sizeof(Real)); }

// How many of COUNT elements lie inside, where `left` more of the row do, if it is one at all: even rows end with whole copies.
template <Rows ROWS_ARE, int COUNT> __device__ __forceinline__ int inside(bool is_row, int left)
{
    if (ROWS_ARE != Rows::UNEVEN) return is_row && left > 0 ? COUNT : 0;
    return !is_row || left < 0 ? 0 : left < COUNT ? left : COUNT;
}

// Whether lines of this distance begin at multiples of 16 bytes, with neighbours side by side.
__device__ __forceinline__ bool in_lanes(const Real* base, Index line, Index neighbour)
{
    return neighbour == 1 && line % LANES == 0 && reinterpret_cast<unsigned long long>(base) % sizeof(Lanes) == 0;
}

static_assert(STAGES * (SLICE_A + SLICE_B) == 9408, "slices are not what the launch takes shared memory for");

// Where a tile of the result (bm x bn) begins; false behind the last one. A launch has fewer than 2^31 of them, so they are counted in 32 bits.
__device__ __forceinline__ bool find_tile(unsigned tile, Index bm, Index bn, Index& row, Index& column)
{
    const unsigned tiles_m = unsigned((bm + TILE_M - 1) / TILE_M), tiles_n = unsigned((bn + TILE_N - 1) / TILE_N);
    const unsigned tiles = tiles_m * tiles_n, in_band = tiles_m < BAND ? tiles : BAND * tiles_n;    // of these, none is above that number
    if (tile >= tiles) return false;
    const unsigned band = tile / in_band, within = tile % in_band;
    const unsigned height = tiles_m - band * BAND < BAND ? tiles_m - band * BAND : BAND;
    row = Index(band * BAND + within % height) * TILE_M;
    column = Index(within / height) * TILE_N;
    return true;
}

constexpr int WARPS_N = 2, WARP_M = TILE_M / 2, WARP_N = TILE_N / WARPS_N;
constexpr int LANES_M = 4, LANES_N = 8;                                                             // lanes of a warp
constexpr int TALL = WARP_M / (LANES * LANES_M), WIDE = WARP_N / (LANES * LANES_N);                 // reads of a thread
constexpr int ROWS = TALL * LANES, COLUMNS = WIDE * LANES, STEPS = TILE_K;
static_assert(TILE_M == WARP_M * 2 && WARP_M == ROWS * LANES_M, "warps do not cover the rows of the tile");
static_assert(TILE_N == WARP_N * WARPS_N && WARP_N == COLUMNS * LANES_N, "warps do not cover the columns of the tile");

// One tile of the result of one product, a (bm x bk) * b (bk x bn). Rows whose neighbours lie side by side are copied 16 bytes at a time; an
// uneven one from the multiple of 16 bytes before it, so that it begins as much later in shared memory, too, and takes one copy more.
template <Rows ROWS_ARE> __device__ __forceinline__ void multiply_tile(
    const Product& product, const Real* a, Index a_rs, Index a_cs, const Real* b, Index b_rs, Index b_cs, Real* shared,
    Real* A, Index A_rs, Index A_cs, Real* X, Index X_rs, Index X_cs, Real* B, Index B_rs, Index B_cs, Real* Y, Index Y_rs, Index Y_cs, Real* P, Index P_rs, Index P_cs, Index bm, Index bk, Index bn, Index first, Real alpha, Real beta)
{
    constexpr bool UNEVEN = ROWS_ARE == Rows::UNEVEN;
    constexpr int COPIED_A = ROWS_ARE == Rows::ANY ? 1 : CHUNK_A, COPIED_B = ROWS_ARE == Rows::ANY ? 1 : LANES;
    const int thread = threadIdx.x;
    Index tile_row, tile_column;
    if (!find_tile(blockIdx.x, bm, bn, tile_row, tile_column)) return;
    const int rows = bm - tile_row < TILE_M ? int(bm - tile_row) : TILE_M;
    const int columns = bn - tile_column < TILE_N ? int(bn - tile_column) : TILE_N;

    // A slice is copied by all threads. Nothing is read outside of the operands, whose last slice and last tiles may be smaller, but for what
    // shares its 16 bytes with the begin of a row: memory is allocated at multiples of 16 bytes, so that this is allocated, too.
    const int row_a = thread / CHUNKS_A, depth_a = thread % CHUNKS_A * CHUNK_A, depth_b = thread / CHUNKS_B, column_b = thread % CHUNKS_B * LANES;
    const Real* next_a = a + (tile_row + row_a) * a_rs + depth_a * a_cs;
    const Real* next_b = b + depth_b * b_rs + (tile_column + column_b) * b_cs;
    const int late_a = UNEVEN ? past_lanes(next_a) : 0, late_b = UNEVEN ? past_lanes(next_b) : 0;    // HOP_A and HOP_B rows on as much
    next_a -= late_a;
    next_b -= late_b;
    const int slices = int((bk + TILE_K - 1) / TILE_K), last = int(bk - Index(slices - 1) * TILE_K);    // bk is at most 2^34
    const int inside_a = (rows - row_a + HOP_A - 1) / HOP_A;    // how many of its rows lie inside
    const Index hop_a = HOP_A * a_rs, hop_b = HOP_B * b_rs;
    Place place_a[PLACES_A], place_b[PLACES_B];
    #pragma unroll
    for (int e = 0; e < PLACES_A; ++e) place_a[e] = place_of(&shared[slot_a<ROWS_ARE>(row_a + e * HOP_A, depth_a)]);
    #pragma unroll
    for (int e = 0; e < PLACES_B; ++e) place_b[e] = place_of(&shared[SLICE_A + slot_b<ROWS_ARE>(depth_b + e * HOP_B, column_b)]);
    int fetched = 0;
    Copies copies;
    auto fetch = [&](int stage) {
        if (fetched < slices) {
            const int slice = stage * (SLICE_A + SLICE_B);
            const int deep = ++fetched < slices ? TILE_K : last;
            const Real* from = next_a;
            #pragma unroll
            for (int e = 0; e < LOADS_A; ++e, from += hop_a) {
                const Place to = behind(place_a[e % PLACES_A], slice + slot_a<ROWS_ARE>(e / PLACES_A * PLACES_A * HOP_A, 0));
                #pragma unroll
                for (int x = 0; x < CHUNK_A; x += COPIED_A)
                    copies.start<COPIED_A>(behind(to, x), from + x * a_cs, inside<ROWS_ARE, COPIED_A>(e < inside_a, deep + late_a - depth_a - x), depth_a ? 0 : late_a);
                if (UNEVEN && depth_a == 0)
                    copies.start<LANES>(behind(to, TILE_K), from + TILE_K, inside<ROWS_ARE, LANES>(e < inside_a, deep + late_a - TILE_K), 0);
            }
            from = next_b;
            #pragma unroll
            for (int e = 0; e < LOADS_B; ++e, from += hop_b) {
                const Place to = behind(place_b[e % PLACES_B], slice + slot_b<ROWS_ARE>(e / PLACES_B * PLACES_B * HOP_B, 0));
                #pragma unroll
                for (int x = 0; x < LANES; x += COPIED_B)
                    copies.start<COPIED_B>(behind(to, x), from + x * b_cs, inside<ROWS_ARE, COPIED_B>(e * HOP_B < deep - depth_b, columns + late_b - column_b - x), column_b ? 0 : late_b);
                if (UNEVEN && column_b == 0)
                    copies.start<LANES>(behind(to, TILE_N), from + TILE_N, inside<ROWS_ARE, LANES>(e * HOP_B < deep - depth_b, columns + late_b - TILE_N), 0);
            }
            next_a += TILE_K * a_cs;
            next_b += TILE_K * b_rs;
        }
        copies.commit();
    };
    #pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) fetch(s);

    const int lane = thread % 32, m_lane = lane / LANES_N, n_lane = lane % LANES_N;
    const int warp_row = thread / 32 / WARPS_N * WARP_M, warp_column = thread / 32 % WARPS_N * WARP_N;
    Real sum[ROWS][COLUMNS] = {};
    Lanes left[2][TALL], right[2][WIDE];
    const int first_a = warp_row + m_lane * LANES, first_b = SLICE_A + warp_column + n_lane * LANES;
    auto load = [&](int half, const Real* slice, int step) {
        const Real* const from_a = slice + first_a;
        const Real* const from_b = slice + first_b;    // what follows is known here, and stands in the instructions
        #pragma unroll
        for (int q = 0; q < TALL; ++q) left[half][q] = *reinterpret_cast<const Lanes*>(&from_a[slot_a<ROWS_ARE>(q * LANES_M * LANES, step)]);
        #pragma unroll
        for (int q = 0; q < WIDE; ++q) right[half][q] = *reinterpret_cast<const Lanes*>(&from_b[slot_b<ROWS_ARE>(step, q * LANES_N * LANES)]);
    };
    auto multiply = [&](int half) {
        // Row by row, back and forth: neighbours share an operand, or the multiprocessor waits for three registers instead of two.
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            #pragma unroll
            for (int e = 0; e < COLUMNS; ++e) {
                const int s = r % 2 ? COLUMNS - 1 - e : e;
                sum[r][s] = fma(left[half][r / LANES].element[r % LANES], right[half][s / LANES].element[s % LANES], sum[r][s]);
            }
        }
    };

    // While a step is multiplied, what the next one needs is read from shared memory into the other half of the registers.
    copies.wait();
    __syncthreads();
    load(0, shared, 0);
    int stage = 0, vacant = STAGES - 1;
    for (int k = 0; k < slices; ++k) {
        const Real* slice = shared + stage * (SLICE_A + SLICE_B);
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {
                // The next slice has landed, for every thread, and every thread has read all of this one, whose place is filled next.
                copies.wait();
                __syncthreads();
                stage = stage + 1 == STAGES ? 0 : stage + 1;
                slice = shared + stage * (SLICE_A + SLICE_B);
            }
            if (step == 0) {
                fetch(vacant);
                vacant = vacant + 1 == STAGES ? 0 : vacant + 1;
            }
            load((step + 1) % 2, slice, (step + 1) % STEPS);
            multiply(step % 2);
        }
    }

    // What a thread has summed up, in pieces of LANES elements of a row, each so many columns APART.
    // More at once, and sums are kept in such registers that two operands of many a multiply-add lie in one bank.
    constexpr int PIECES = ROWS * WIDE, TOGETHER = 4, APART = 1;
    auto row_of = [&](int p) { return warp_row + (p / WIDE / LANES * LANES_M + m_lane) * LANES + p / WIDE % LANES; };
    auto column_of = [&](int p) { return warp_column + (p % WIDE * LANES_N + n_lane) * LANES; };
    auto piece = [&](int p) {
        Lanes found;
        #pragma unroll
        for (int x = 0; x < LANES; ++x) found.element[x] = sum[p / WIDE][p % WIDE * LANES + x];
        return found;
    };
    static_assert(PIECES % TOGETHER == 0, "pieces are left over");
    for (int d = product.first; d < product.first + product.count; ++d) {
        const Destination to = DESTINATIONS[d];
        const bool begins = false;    // the first write adds to beta times what was there
        const Index c_rs = P_rs, c_cs = P_cs;
        Real* const c = (P) + (to.row * bm + tile_row) * c_rs + (to.column * bn + tile_column) * c_cs;
        const Real factor = alpha * to.coefficient;
        const Real keep = !to.first ? Real(1) : begins ? beta : Real(0);
        const bool vector = APART == 1 && columns % LANES == 0 && in_lanes(c, c_rs, c_cs);
        // The old values of a few pieces are asked for before the first of them is needed: one by one they would be waited for one by one.
        #pragma unroll
        for (int begin = 0; begin < PIECES; begin += TOGETHER) {
            Lanes value[TOGETHER] = {};
            if (keep != Real(0)) {
                #pragma unroll
                for (int p = 0; p < TOGETHER; ++p) {
                    const int i = row_of(begin + p), j = column_of(begin + p);
                    const Real* const at = c + i * c_rs + j * c_cs;
                    if (i >= rows || j >= columns) continue;
                    if (vector) value[p] = *reinterpret_cast<const Lanes*>(at);
                    else {
                        #pragma unroll
                        for (int x = 0; x < LANES; ++x)
                            if (j + x * APART < columns) value[p].element[x] = at[x * APART * c_cs];
                    }
                }
            }
            #pragma unroll
            for (int p = 0; p < TOGETHER; ++p) {
                const int i = row_of(begin + p), j = column_of(begin + p);
                Real* const at = c + i * c_rs + j * c_cs;
                const Lanes own = piece(begin + p);
                #pragma unroll
                for (int x = 0; x < LANES; ++x)
                    value[p].element[x] = keep == Real(0) ? factor * own.element[x] : keep * value[p].element[x] + factor * own.element[x];
                if (i >= rows || j >= columns) continue;
                if (vector) *reinterpret_cast<Lanes*>(at) = value[p];
                else {
                    #pragma unroll
                    for (int x = 0; x < LANES; ++x)
                        if (j + x * APART < columns) at[x * APART * c_cs] = value[p].element[x];
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(128, 3)
winograd_expand_l1_product_f32(Real* A, Index A_rs, Index A_cs, Real* X, Index X_rs, Index X_cs, Real* B, Index B_rs, Index B_cs, Real* Y, Index Y_rs, Index Y_cs, Real* P, Index P_rs, Index P_cs, Index bm, Index bk, Index bn, Index first, Real alpha, Real beta)
{
    extern __shared__ __align__(16) unsigned char memory[];    // 37632 bytes
    Real* const shared = reinterpret_cast<Real*>(memory);
    const Product product = PRODUCTS[first + blockIdx.y];
    const Index a_rs = product.left_space == 0 ? A_rs : X_rs, a_cs = product.left_space == 0 ? A_cs : X_cs;
    const Index b_rs = product.right_space == 0 ? B_rs : Y_rs, b_cs = product.right_space == 0 ? B_cs : Y_cs;
    const Real* const a = (product.left_space == 0 ? A : X) + product.left_row * bm * a_rs + product.left_column * bk * a_cs;
    const Real* const b = (product.right_space == 0 ? B : Y) + product.right_row * bk * b_rs + product.right_column * bn * b_cs;
    const bool left_aligned = CHUNK_A == 1 ? a_cs == 1 : bk % CHUNK_A == 0 && in_lanes(a, a_rs, a_cs);
    if (left_aligned && bn % LANES == 0 && in_lanes(b, b_rs, b_cs))
        multiply_tile<Rows::EVEN>(product, a, a_rs, 1, b, b_rs, 1, shared, A, A_rs, A_cs, X, X_rs, X_cs, B, B_rs, B_cs, Y, Y_rs, Y_cs, P, P_rs, P_cs, bm, bk, bn, first, alpha, beta);
    else if (TAKES_UNEVEN && a_cs == 1 && b_cs == 1)
        multiply_tile<TAKES_UNEVEN ? Rows::UNEVEN : Rows::ANY>(product, a, a_rs, 1, b, b_rs, 1, shared, A, A_rs, A_cs, X, X_rs, X_cs, B, B_rs, B_cs, Y, Y_rs, Y_cs, P, P_rs, P_cs, bm, bk, bn, first, alpha, beta);
    else
        multiply_tile<Rows::ANY>(product, a, a_rs, a_cs, b, b_rs, b_cs, shared, A, A_rs, A_cs, X, X_rs, X_cs, B, B_rs, B_cs, Y, Y_rs, Y_cs, P, P_rs, P_cs, bm, bk, bn, first, alpha, beta);
}
