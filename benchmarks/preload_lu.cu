// The parts of an LU by rows with row exchanges that are no products: a narrow panel in registers, and exchanges of rows. REAL is the type.

const int WIDTH = 32, THREADS = 512, SEGMENT = 64 / sizeof(REAL);

// The LU of the columns first ... first + WIDTH - 1 below row `first`, a row in each thread's registers. All blocks must run at once: there
// are no more than multiprocessors. In each of WIDTH steps every block offers a row, and all of them take the one with the largest element.
// A row is not moved but told its place; source[t] is who comes to row t of the panel, target[r] where row r < WIDTH goes.
extern "C" __global__ void __launch_bounds__(THREADS) narrow(REAL *a, long long ld, int first, int rows, volatile REAL *offered,
                                                             volatile int *places, volatile int *stamps, int epoch, int *source, int *target)
{
    __shared__ REAL largest[THREADS / 32], pivot[WIDTH];
    __shared__ int owners[THREADS / 32], chosen;
    const int mine = blockIdx.x * THREADS + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int place = mine;
    bool is_left = mine < rows;
    REAL row[WIDTH];
    REAL *here = a + (first + (long long)mine) * ld + first;
#pragma unroll
    for (int c = 0; c < WIDTH; ++c)
        row[c] = is_left ? here[c] : 0;
#pragma unroll
    for (int t = 0; t < WIDTH; ++t) {
        REAL value = is_left ? fabs(row[t]) : (REAL)-1;
        int owner = threadIdx.x;
        for (int step = 16; step; step /= 2) {
            const REAL other = __shfl_xor_sync(0xffffffff, value, step);
            const int who = __shfl_xor_sync(0xffffffff, owner, step);
            if (other > value || (other == value && who < owner))
                value = other, owner = who;
        }
        if (lane == 0)
            largest[warp] = value, owners[warp] = owner;
        __syncthreads();
        value = largest[lane % (THREADS / 32)], owner = owners[lane % (THREADS / 32)];
        for (int step = 8; step; step /= 2) {
            const REAL other = __shfl_xor_sync(0xffffffff, value, step);
            const int who = __shfl_xor_sync(0xffffffff, owner, step);
            if (other > value || (other == value && who < owner))
                value = other, owner = who;
        }
        const int slot = t % 2 * gridDim.x, stamp = epoch * WIDTH + t + 1;
        if (threadIdx.x == owner) {
            volatile REAL *out = offered + (slot + blockIdx.x) * (long long)WIDTH;
#pragma unroll
            for (int c = 0; c < WIDTH; ++c)
                out[c] = row[c];
            places[slot + blockIdx.x] = is_left ? place : -1;
            __threadfence();
            stamps[slot + blockIdx.x] = stamp;
        }
        if (warp == 0) {
            REAL most = -1;
            int block = 0;
            for (int b = lane; b < gridDim.x; b += 32) {
                while (stamps[slot + b] != stamp)
                    ;
                __threadfence();
                const REAL size = places[slot + b] < 0 ? (REAL)-1 : fabs(offered[(slot + b) * (long long)WIDTH + t]);
                if (size > most)
                    most = size, block = b;
            }
            for (int step = 16; step; step /= 2) {
                const REAL other = __shfl_xor_sync(0xffffffff, most, step);
                const int who = __shfl_xor_sync(0xffffffff, block, step);
                if (other > most || (other == most && who < block))
                    most = other, block = who;
            }
            __syncwarp();
            pivot[lane] = offered[(slot + block) * (long long)WIDTH + lane];
            if (lane == 0)
                chosen = places[slot + block];
        }
        __syncthreads();
        if (is_left && place == chosen) {
            place = t, is_left = false;
        } else if (is_left) {
            if (place == t)
                place = chosen;
            const REAL factor = row[t] / pivot[t];
            row[t] = factor;
#pragma unroll
            for (int c = t + 1; c < WIDTH; ++c)
                row[c] -= factor * pivot[c];
        }
    }
    if (mine >= rows)
        return;
    here = a + (first + (long long)place) * ld + first;
#pragma unroll
    for (int c = 0; c < WIDTH; ++c)
        here[c] = row[c];
    if (place < WIDTH)
        source[place] = mine;
    if (mine < WIDTH)
        target[mine] = place;
}

// The exchanges of a narrow panel in the other columns begin ... end - 1 of its block, a column a thread; and in `origin`, which tells of
// each row where it was before the block.
extern "C" __global__ void exchange_few(REAL *a, long long ld, int first, int begin, int end, int *origin, const int *source,
                                        const int *target)
{
    const int column = begin + blockIdx.x * blockDim.x + threadIdx.x;
    if (column == end) {
        int top[WIDTH], come[WIDTH];
        for (int t = 0; t < WIDTH; ++t)
            top[t] = origin[first + t], come[t] = origin[first + source[t]];
        for (int t = 0; t < WIDTH; ++t) {
            origin[first + t] = come[t];
            if (target[t] >= WIDTH)
                origin[first + target[t]] = top[t];
        }
    }
    if (column >= end || (column >= first && column < first + WIDTH))
        return;
    REAL *x = a + first * ld + column, top[WIDTH], come[WIDTH];
#pragma unroll
    for (int t = 0; t < WIDTH; ++t)
        top[t] = x[t * ld], come[t] = x[source[t] * ld];
#pragma unroll
    for (int t = 0; t < WIDTH; ++t) {
        x[t * ld] = come[t];
        if (target[t] >= WIDTH)
            x[target[t] * ld] = top[t];
    }
}

// The rows first ... size - 1 that a block of columns moved, as pairs (to, from); moved[0] is their number.
extern "C" __global__ void list_moved(const int *origin, int first, int size, int *moved)
{
    const int row = first + blockIdx.x * blockDim.x + threadIdx.x;
    if (row < size && origin[row] != row) {
        const int number = atomicAdd(moved, 1);
        moved[1 + 2 * number] = row, moved[2 + 2 * number] = origin[row];
    }
}

// Their exchange in SEGMENT columns a block, all but begin ... end - 1: read once, written once.
extern "C" __global__ void exchange_many(REAL *a, long long ld, int begin, int end, const int *moved)
{
    extern __shared__ REAL kept[];
    const int column = blockIdx.x * SEGMENT, count = moved[0] * SEGMENT;
    if (column >= begin && column < end)
        return;
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        kept[i] = a[moved[2 + i / SEGMENT * 2] * ld + column + i % SEGMENT];
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        a[moved[1 + i / SEGMENT * 2] * ld + column + i % SEGMENT] = kept[i];
}
