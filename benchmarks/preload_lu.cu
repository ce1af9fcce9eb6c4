// The parts of an LU by rows with row exchanges that are no products: a narrow panel in registers, and exchanges of rows. REAL is the type.

const int WIDTH = 32, THREADS = 512, SEGMENT = 64 / sizeof(REAL);

// A number with its stamp beside each half, so that who reads it knows without a fence that it is the new one.
__device__ void send(uint4 *to, double value, unsigned stamp)
{
    const unsigned low = __double2loint(value), high = __double2hiint(value);
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(to), "r"(low), "r"(stamp), "r"(high) : "memory");
}

__device__ bool has_come(const uint4 *from, unsigned stamp, double &value)
{
    unsigned low, first, high, second;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(low), "=r"(first), "=r"(high), "=r"(second) : "l"(from) : "memory");
    value = __hiloint2double(high, low);
    return first == stamp && second == stamp;
}

// The LU of the columns first ... first + WIDTH - 1 below row `first`, a row in each thread's registers. All blocks must run at once: there
// are no more than multiprocessors. In each of WIDTH steps every block offers a row, and all of them take the one with the largest element.
// A row is not moved but told its place; source[t] is who comes to row t of the panel, target[r] where row r < WIDTH goes. `epoch` is
// another one in each launch since `offered` was cleared.
extern "C" __global__ void __launch_bounds__(THREADS, 1) narrow(REAL *a, long long ld, int first, int rows, uint4 *offered, int epoch,
                                                             int *source, int *target)
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
        const unsigned stamp = epoch * WIDTH + t + 1;
        uint4 *slots = offered + t % 2 * gridDim.x * (WIDTH + 1);
        if (threadIdx.x == owner) {
            uint4 *out = slots + blockIdx.x * (WIDTH + 1);
            send(out + t, is_left ? row[t] : 0, stamp);
            send(out + WIDTH, is_left ? place : -1, stamp);
#pragma unroll
            for (int c = t + 1; c < WIDTH; ++c)
                send(out + c, row[c], stamp);
        }
        if (warp == 0) {
            double most = -1, element, where;
            int block = 0, its = -1;
            for (int b = lane; b < gridDim.x; b += 32) {
                const uint4 *in = slots + b * (WIDTH + 1);
                while (!(has_come(in + t, stamp, element) & has_come(in + WIDTH, stamp, where)))
                    ;
                if (where >= 0 && fabs(element) > most)
                    most = fabs(element), block = b, its = where;
            }
            for (int step = 16; step; step /= 2) {
                const double other = __shfl_xor_sync(0xffffffff, most, step);
                const int who = __shfl_xor_sync(0xffffffff, block, step);
                if (other > most || (other == most && who < block))
                    most = other, block = who;
            }
            its = __shfl_sync(0xffffffff, its, block % 32);
            element = 0;
            while (lane >= t && !has_come(slots + block * (WIDTH + 1) + lane, stamp, element))
                ;
            pivot[lane] = element;
            if (lane == 0)
                chosen = its;
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
