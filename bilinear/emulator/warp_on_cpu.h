// A warp's matrix instructions of chips from sm_80 on, and the asynchronous copies that feed them, on a CPU, as the functions that kernels call
// them by. Included after warpgroup_on_cpu.h where the emitted text uses one.
//
// A copy lands where its thread waits for it, and no earlier; until then its destination is all ones, which is NaN in float16. Others see it
// after a barrier behind that, as on a GPU. The lanes of a warp meet at every matrix instruction, and each reads what the others hold, in
// the layouts of the registers. Source: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions", "cp.async".
#pragma once

namespace cuda_on_cpu {

constexpr unsigned LANES_OF_WARP = 32, MOST_PENDING = 64, SHOWN = 24, COPIED = 16;

struct PendingCopy {
    unsigned char* to;
    const unsigned char* from;
    uint32_t group, line;
};

struct ThreadCopies {
    uint32_t committed, pending;               // groups; copies, in the order of issue
    PendingCopy copy[MOST_PENDING];
};

// What the lanes of a warp show each other. A lane shows the next thing in the other place, so that nobody changes what is still read.
struct Shown {
    uint32_t turn[LANES_OF_WARP];
    uint32_t word[2][LANES_OF_WARP][SHOWN];
};

struct Warps {
    Shown shown[MOST_THREADS / LANES_OF_WARP];
    ThreadCopies copies[MOST_THREADS];
};

constexpr size_t WARPS_AT = sizeof(Asynchronous) + MOST_WARPGROUPS * sizeof(Warpgroup);
static_assert(WARPS_AT % alignof(Warps) == 0 && WARPS_AT + sizeof(Warps) <= EXTENSION);

inline Warps& warps_of(Worker& w) { return *reinterpret_cast<Warps*>(w.extension + WARPS_AT); }

CUDA_ON_CPU_ONCE void begin_warps(Worker& w)
{
    begin_asynchronous(w);
    Warps& all = warps_of(w);
    for (unsigned i = 0; i < MOST_THREADS / LANES_OF_WARP; ++i) memset(all.shown[i].turn, 0, sizeof all.shown[i].turn);
    for (unsigned i = 0; i < w.count; ++i) all.copies[i].committed = all.copies[i].pending = 0;
}

CUDA_ON_CPU_ONCE void end_warps(Worker& w)
{
    end_asynchronous(w);
    for (unsigned i = 0; i < w.count; ++i) {
        const ThreadCopies& own = warps_of(w).copies[i];
        if (own.pending == 0) continue;
        act_for(w, w.fibers[i].thread, own.copy[0].line);
        misuse(own.copy[0].line, "the block ends while this copy is on its way");
    }
}

#ifdef CUDA_ON_CPU_RUNTIME
static const bool has_warps = (extension = {begin_warps, end_warps, advance_asynchronous}, true);
#endif

// Where 16 bytes of dynamic shared memory lie.
CUDA_ON_CPU_ONCE unsigned char* sixteen_at(unsigned address, unsigned line)
{
    Worker& w = *worker;
    const uint64_t begin = uint64_t(w.dynamic_shared - shared_window(w));
    if (address % COPIED != 0) misuse(line, "an address in shared memory that is not a multiple of %u", COPIED);
    if (address < begin || address + COPIED > begin + w.launch->shared_bytes) misuse(line, "16 bytes outside dynamic shared memory");
    return shared_window(w) + address;
}

// The words of a lane are shown to its warp; returns those of all lanes.
CUDA_ON_CPU_ONCE const uint32_t (&show(const uint32_t* words, unsigned count, unsigned line, const char* place))[LANES_OF_WARP][SHOWN]
{
    const unsigned lane = worker->current % LANES_OF_WARP;
    Shown& own = warps_of(*worker).shown[worker->current / LANES_OF_WARP];
    const uint32_t turn = own.turn[lane]++;
    memcpy(own.word[turn % 2][lane], words, count * sizeof *words);
    wait(AT_WARP_BARRIER, 0xffffffff, line, place);
    for (const uint32_t other : own.turn)
        if (other != turn + 1 && other != turn + 2) misuse(line, "not all lanes of the warp are at this %s", place);    // some may be at the next
    return own.word[turn % 2];
}

inline unsigned half_of(uint32_t word, unsigned which) { return word >> 16 * which & 0xffff; }

// Sums of `depth` products: a lane's own two rows and two columns, from values that lanes hold `each` neighbours of at a time.
template <class Sum, class Value, unsigned DEPTH, unsigned EACH, class Add>
__attribute__((optimize("O3"), no_sanitize("undefined"))) inline void multiply_in_warp(Sum (&sum)[4], const Value (&left)[4 * EACH],
    const Value (&right)[2 * EACH], unsigned line, Add add)
{
    static_assert(sizeof(Value) == 4 && 6 * EACH <= SHOWN && DEPTH == 8 * EACH);
    uint32_t words[6 * EACH];
    memcpy(words, left, sizeof left);
    memcpy(words + 4 * EACH, right, sizeof right);
    const auto& all = show(words, 6 * EACH, line, "multiply_add");
    const unsigned lane = worker->current % LANES_OF_WARP, g = lane / 4, t = lane % 4;
    for (unsigned e = 0; e < 4; ++e) {
        Value a[DEPTH], b[DEPTH];
        for (unsigned k = 0; k < DEPTH; ++k) {
            const unsigned late = k / (DEPTH / 2), holder = k % (DEPTH / 2) / EACH, inside = k % EACH;
            memcpy(&a[k], &all[g * 4 + holder][(e / 2 + 2 * late) * EACH + inside], sizeof(Value));
            memcpy(&b[k], &all[(2 * t + e % 2) * 4 + holder][(4 + late) * EACH + inside], sizeof(Value));
        }
        sum[e] = add(sum[e], a, b);
    }
}

// The model of units_on_cpu.h: the products and the old sum are added up exactly, and the bits below float's 24 are dropped.
__attribute__((optimize("O3"))) CUDA_ON_CPU_ONCE float add_float16(float old, const float (&a)[16], const float (&b)[16])
{
    constexpr uint64_t CUT = (uint64_t(1) << 29) - 1;
    double total = old;
    for (unsigned k = 0; k < 16; ++k) total += double(a[k]) * b[k];
    return float(std::bit_cast<double>(std::bit_cast<uint64_t>(total) & ~CUT));
}

__attribute__((optimize("O3"), no_sanitize("undefined"))) CUDA_ON_CPU_ONCE int add_int8(int old, const int (&a)[32], const int (&b)[32])
{
    uint32_t total = uint32_t(old);
    for (unsigned k = 0; k < 32; ++k) total += uint32_t(a[k] * b[k]);
    return int(total);
}

}  // namespace cuda_on_cpu

// ------------------------------------------------------------------------------------------------------------- what kernels call

CUDA_ON_CPU_ONCE void copy_16(unsigned to, const void* from, unsigned line = __builtin_LINE())
{
    using namespace cuda_on_cpu;
    if (reinterpret_cast<uint64_t>(from) % COPIED != 0) misuse(line, "the source of a copy is not aligned to 16 bytes");
    ThreadCopies& own = warps_of(*worker).copies[worker->current];
    if (own.pending == MOST_PENDING) misuse(line, "more than %u copies of a thread under way", MOST_PENDING);
    unsigned char* const at = sixteen_at(to, line);
    memset(at, 0xff, COPIED);
    own.copy[own.pending++] = {at, static_cast<const unsigned char*>(from), own.committed, line};
}

inline void copies_commit() { cuda_on_cpu::warps_of(*cuda_on_cpu::worker).copies[cuda_on_cpu::worker->current].committed += 1; }

template <int PENDING> inline void copies_wait()
{
    using namespace cuda_on_cpu;
    ThreadCopies& own = warps_of(*worker).copies[worker->current];
    unsigned left = 0;
    for (unsigned i = 0; i < own.pending; ++i) {
        const PendingCopy copy = own.copy[i];
        if (copy.group + PENDING >= own.committed) {
            own.copy[left++] = copy;
            continue;
        }
        worker->line = copy.line;
        memcpy(copy.to, copy.from, COPIED);
        worker->line = 0;
    }
    own.pending = left;
}

template <int TURNED> inline void load_matrices(unsigned (&found)[4], unsigned at, unsigned line = __builtin_LINE())
{
    using namespace cuda_on_cpu;
    uint32_t row[4];
    memcpy(row, sixteen_at(at, line), sizeof row);
    const auto& all = show(row, 4, line, "load_matrices");
    const unsigned lane = worker->current % LANES_OF_WARP, g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; ++i) {
        const auto& matrix = &all[8 * i];
        if (TURNED) found[i] = half_of(matrix[2 * t][g / 2], g % 2) | half_of(matrix[2 * t + 1][g / 2], g % 2) << 16;
        else found[i] = matrix[g][t];
    }
}

CUDA_ON_CPU_ONCE void multiply_add(float (&sum)[4], const unsigned (&a)[4], unsigned b_first, unsigned b_second, unsigned line = __builtin_LINE())
{
    using namespace cuda_on_cpu;
    float left[8], right[4];
    for (unsigned i = 0; i < 8; ++i) left[i] = value_of_half(uint16_t(half_of(a[i / 2], i % 2)));
    for (unsigned i = 0; i < 4; ++i) right[i] = value_of_half(uint16_t(half_of(i / 2 ? b_second : b_first, i % 2)));
    multiply_in_warp<float, float, 16, 2>(sum, left, right, line, add_float16);
}

CUDA_ON_CPU_ONCE void multiply_add(int (&sum)[4], const unsigned (&a)[4], unsigned b_first, unsigned b_second, unsigned line = __builtin_LINE())
{
    using namespace cuda_on_cpu;
    int left[16], right[8];
    for (unsigned i = 0; i < 16; ++i) left[i] = int8_t(a[i / 4] >> 8 * (i % 4));
    for (unsigned i = 0; i < 8; ++i) right[i] = int8_t((i / 4 ? b_second : b_first) >> 8 * (i % 4));
    multiply_in_warp<int, int, 32, 4>(sum, left, right, line, add_int8);
}
