// hopcroft_kerr_expand_l1_product_f64: 15 product(s) of hopcroft_kerr-expand at 1 level(s), 15 destination(s).
// A launch runs the products from `first` on: blockIdx.y counts them, blockIdx.x the tiles of their results. No two products of a launch share a destination.
#ifdef REAL    // another type of elements, for who compiles this text for another purpose
typedef REAL Real;
#define NEAREST(number, exact) Real(exact)
#else
typedef double Real;
#define NEAREST(number, exact) Real(number)    // of a coefficient that the type does not hold
#endif
typedef long long Index;
constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 32, THREADS = 128;
constexpr int STAGES = 2;    // slices of depth TILE_K that are under way at once
constexpr int LANES = 2;     // elements of a copy of 16 bytes
static_assert(STAGES > 1, "a slice would be filled while it is read");
constexpr int BAND = 8;      // rows of tiles that are walked down before the next column: their operands stay in the L2 cache

struct Product { int left_space, left_row, left_column, right_space, right_row, right_column, first, count; };
struct Destination { int space, row, column, first; Real coefficient; };
struct alignas(16) Lanes { Real element[LANES]; };
enum class Rows { ANY, UNEVEN, EVEN };    // of operands: with any strides; neighbours side by side; that, and at multiples of 16 bytes

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

// Slices in shared memory: A by rows, B by depth, in chunks of 16 bytes whose places are exchanged so that no read of a warp, and no copy of
// whole chunks, meets a bank twice: LANES rows of A are read at once, 8 / LANES chunks of each, and two chunks of B from each of four depths.
// Rows of floats that begin anywhere are a chunk longer, and lie in their order, for elements are read one by one. A double is half a chunk:
// those are copied one by one instead.
constexpr bool TAKES_UNEVEN = LANES > 2;
constexpr int LONGER = TAKES_UNEVEN ? LANES : 0;
constexpr int CHUNK_A = LANES, SLICE_A = TILE_M * (TILE_K + LONGER), SLICE_B = TILE_K * (TILE_N + LONGER);
constexpr int PERIOD_A = LANES, PERIOD_B = 8;
static_assert(TILE_K % (8 * LANES) == 0 && TILE_N % (8 * LANES) == 0, "there are too few chunks to exchange");
template <Rows ROWS_ARE> __device__ __forceinline__ int slot_a(int row, int depth)
{
    if (ROWS_ARE == Rows::UNEVEN) return row * (TILE_K + LONGER) + depth;
    return row * TILE_K + LANES * (depth / LANES ^ 8 / LANES * (row & (LANES - 1))) + depth % LANES;
}
template <Rows ROWS_ARE> __device__ __forceinline__ int slot_b(int depth, int column)
{
    if (ROWS_ARE == Rows::UNEVEN) return depth * (TILE_N + LONGER) + column;
    return depth * TILE_N + LANES * (column / LANES ^ 2 * (depth / 2 & 3)) + column % LANES;
}

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

static_assert(STAGES * (SLICE_A + SLICE_B) == 8192, "slices are not what the launch takes shared memory for");

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
constexpr int STEP_K = 8, STEPS = TILE_K / STEP_K, REPEATS = LANES;    // steps after which places in a row of A repeat, but for a distance
// Matrix instructions of a warp: TALL along m; along n WIDE chunks of a lane, each for as many instructions as it has pairs of columns.
constexpr int TALL = WARP_M / 8, WIDE = WARP_N / (8 * LANES), PAIRS = LANES / 2;
static_assert(WARP_M % 8 == 0 && WARP_N % (8 * LANES) == 0, "a warp has no whole number of instructions");
static_assert(TILE_M == WARP_M * 2 && TILE_N == WARP_N * WARPS_N, "warps do not cover the tile");

// The matrix units multiply doubles. Floats are exact in them, and so are their products.
#ifdef REAL
typedef REAL Sum;
#else
typedef double Sum;
#endif
struct alignas(2 * sizeof(Real)) Pair { Real element[2]; };

// Elements in shared memory that are so many APART, neighbours at once where they begin at a multiple of their size.
template <bool AT_ONCE, int APART, typename Elements> __device__ __forceinline__ void read(Elements& found, const Real* from)
{
    if (AT_ONCE) found = *reinterpret_cast<const Elements*>(from);
    else {
        #pragma unroll
        for (int x = 0; x < int(sizeof(Elements) / sizeof(Real)); ++x) found.element[x] = from[x * APART];
    }
}

// sum (16 x 8) += left (16 x 8) * right (8 x 8), one matrix unit instruction of a warp. With g = lane / 4 and t = lane % 4 a lane holds
// left(g, t), left(g + 8, t), left(g, t + 4), left(g + 8, t + 4), right(t, g), right(t + 4, g), and the sums (g, 2t), (g, 2t + 1),
// (g + 8, 2t), (g + 8, 2t + 1).
__device__ __forceinline__ void multiply_add(Sum (&sum)[4], const Sum (&left)[4], const Sum (&right)[2])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 { %0, %1, %2, %3 }, { %4, %5, %6, %7 }, { %8, %9 }, { %0, %1, %2, %3 };"
        : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
        : "d"(left[0]), "d"(left[1]), "d"(left[2]), "d"(left[3]), "d"(right[0]), "d"(right[1]));
#elif defined(__CUDA_ARCH__)
    // Before sm_90 the same in four quarters: the lanes hold what they hold above.
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
        #pragma unroll
        for (int q = 0; q < 2; ++q)
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 { %0, %1 }, { %2 }, { %3 }, { %0, %1 };"
                : "+d"(sum[2 * q]), "+d"(sum[2 * q + 1]) : "d"(left[2 * h + q]), "d"(right[h]));
    }
#else
    // The portable body: lanes show their operands to the warp through shared memory.
    __shared__ Sum shown[THREADS][6];
    const int thread = threadIdx.x, warp = thread - thread % 32, g = thread % 32 / 4, t = thread % 4;
    for (int e = 0; e < 4; ++e) shown[thread][e] = left[e];
    for (int h = 0; h < 2; ++h) shown[thread][4 + h] = right[h];
    __syncwarp();
    for (int p = 0; p < STEP_K; ++p)
        for (int e = 0; e < 4; ++e)
            sum[e] = fma(shown[warp + g * 4 + p % 4][p / 4 * 2 + e / 2], shown[warp + (2 * t + e % 2) * 4 + p % 4][4 + p / 4], sum[e]);
    __syncwarp();
#endif
}

// One tile of the result of one product, a (bm x bk) * b (bk x bn). Rows whose neighbours lie side by side are copied 16 bytes at a time; an
// uneven one from the multiple of 16 bytes before it, so that it begins as much later in shared memory, too, and takes one copy more.
template <Rows ROWS_ARE> __device__ __forceinline__ void multiply_tile(
    const Product& product, const Real* a, Index a_rs, Index a_cs, const Real* b, Index b_rs, Index b_cs, Real* shared,
    Real* X, Index X_rs, Index X_cs, Real* A, Index A_rs, Index A_cs, Real* B, Index B_rs, Index B_cs, Real* Y, Index Y_rs, Index Y_cs, Real* P, Index P_rs, Index P_cs, Index bm, Index bk, Index bn, Index first, Real alpha, Real beta)
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

    // The instruction's left operand are columns of B and its right one rows of A, so that B is read 16 bytes at a time and two depths of A
    // together: of a step's depths lane t takes 2t and 2t + 1, and of every 8 * LANES columns lane g takes the g-th chunk; of uneven rows,
    // whose elements are read one by one, it takes every eighth column, so that the lanes read neighbours.
    constexpr int APART = UNEVEN ? 8 : 1;
    const int lane = thread % 32, group = lane / 4, member = lane % 4;
    const int warp_row = thread / 32 / WARPS_N * WARP_M, warp_column = thread / 32 % WARPS_N * WARP_N;
    Sum sum[TALL][WIDE][PAIRS][4] = {};
    Pair left[2][TALL];
    Lanes right[2][WIDE][2];
    // A row of A is as late as that 8 rows before, and a depth of B as that 8 before.
    static_assert(!TAKES_UNEVEN || (HOP_A % LANES == 0 && HOP_B % LANES == 0 && TILE_K % LANES == 0), "a thread's rows are not equally late");
    int first_a[REPEATS], first_b[2];
    #pragma unroll
    for (int e = 0; e < REPEATS; ++e)
        first_a[e] = slot_a<ROWS_ARE>(warp_row + group, e * STEP_K + 2 * member) + (UNEVEN ? past_lanes(a + (tile_row + warp_row + group) * a_rs) : 0);
    #pragma unroll
    for (int h = 0; h < 2; ++h)
        first_b[h] = SLICE_A + slot_b<ROWS_ARE>(2 * member, warp_column + group * (UNEVEN ? 1 : LANES)) + (UNEVEN ? past_lanes(b + (2 * member + h) * b_rs + tile_column) : 0);
    auto load = [&](int half, const Real* slice, int step) {
        const Real* const from_a = slice + first_a[step % REPEATS];
        #pragma unroll
        for (int s = 0; s < WIDE; ++s) {
            #pragma unroll
            for (int h = 0; h < 2; ++h)    // what is added is known here, and stands in the instructions
                read<!UNEVEN, APART>(right[half][s][h], slice + first_b[h] + slot_b<ROWS_ARE>(step * STEP_K + h, 0) + s * 8 * LANES);
        }
        #pragma unroll
        for (int r = 0; r < TALL; ++r)
            read<!UNEVEN, 1>(left[half][r], from_a + slot_a<ROWS_ARE>(r * 8, 0) + (step / REPEATS) * REPEATS * STEP_K);
    };
    auto multiply = [&](int half) {
        #pragma unroll
        for (int r = 0; r < TALL; ++r) {
            const Sum row[2] = { Sum(left[half][r].element[0]), Sum(left[half][r].element[1]) };
            #pragma unroll
            for (int s = 0; s < WIDE; ++s) {
                #pragma unroll
                for (int p = 0; p < PAIRS; ++p) {
                    const Lanes (&chunk)[2] = right[half][s];
                    const Sum columns_of[4] = { Sum(chunk[0].element[2 * p]), Sum(chunk[0].element[2 * p + 1]),
                        Sum(chunk[1].element[2 * p]), Sum(chunk[1].element[2 * p + 1]) };
                    multiply_add(sum[r][s][p], columns_of, row);
                }
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
    constexpr int PIECES = TALL * WIDE * 2, TOGETHER = PIECES % 8 == 0 ? 8 : 2;
    auto row_of = [&](int p) { return warp_row + p / (2 * WIDE) * 8 + 2 * member + p % 2; };
    auto column_of = [&](int p) { return warp_column + p / 2 % WIDE * 8 * LANES + group * (UNEVEN ? 1 : LANES); };
    auto piece = [&](int p) {
        Lanes found;
        #pragma unroll
        for (int x = 0; x < LANES; ++x) found.element[x] = Real(sum[p / (2 * WIDE)][p / 2 % WIDE][x / 2][x % 2 * 2 + p % 2]);
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
hopcroft_kerr_expand_l1_product_f64(Real* X, Index X_rs, Index X_cs, Real* A, Index A_rs, Index A_cs, Real* B, Index B_rs, Index B_cs, Real* Y, Index Y_rs, Index Y_cs, Real* P, Index P_rs, Index P_cs, Index bm, Index bk, Index bn, Index first, Real alpha, Real beta)
{
    extern __shared__ __align__(16) unsigned char memory[];    // 65536 bytes
    Real* const shared = reinterpret_cast<Real*>(memory);
    const Product product = PRODUCTS[first + blockIdx.y];
    const Index a_rs = product.left_space == 0 ? X_rs : A_rs, a_cs = product.left_space == 0 ? X_cs : A_cs;
    const Index b_rs = product.right_space == 0 ? B_rs : Y_rs, b_cs = product.right_space == 0 ? B_cs : Y_cs;
    const Real* const a = (product.left_space == 0 ? X : A) + product.left_row * bm * a_rs + product.left_column * bk * a_cs;
    const Real* const b = (product.right_space == 0 ? B : Y) + product.right_row * bk * b_rs + product.right_column * bn * b_cs;
    const bool left_aligned = CHUNK_A == 1 ? a_cs == 1 : bk % CHUNK_A == 0 && in_lanes(a, a_rs, a_cs);
    if (left_aligned && bn % LANES == 0 && in_lanes(b, b_rs, b_cs))
        multiply_tile<Rows::EVEN>(product, a, a_rs, 1, b, b_rs, 1, shared, X, X_rs, X_cs, A, A_rs, A_cs, B, B_rs, B_cs, Y, Y_rs, Y_cs, P, P_rs, P_cs, bm, bk, bn, first, alpha, beta);
    else if (TAKES_UNEVEN && a_cs == 1 && b_cs == 1)
        multiply_tile<TAKES_UNEVEN ? Rows::UNEVEN : Rows::ANY>(product, a, a_rs, 1, b, b_rs, 1, shared, X, X_rs, X_cs, A, A_rs, A_cs, B, B_rs, B_cs, Y, Y_rs, Y_cs, P, P_rs, P_cs, bm, bk, bn, first, alpha, beta);
    else
        multiply_tile<Rows::ANY>(product, a, a_rs, a_cs, b, b_rs, b_cs, shared, X, X_rs, X_cs, A, A_rs, A_cs, B, B_rs, B_cs, Y, Y_rs, Y_cs, P, P_rs, P_cs, bm, bk, bn, first, alpha, beta);
}
