// Hopper's matrix instruction on a CPU, with its descriptors and the layouts of its operands and registers, and half precision, as the
// functions that kernels call them by. Included after hopper_on_cpu.h.
//
// The threads of a warpgroup issue a multiplication; from then on the registers of its accumulator hold a signalling NaN. At a group_wait
// shared memory is read and the registers get their values. Not modelled: the fence that a multiplication needs after ordinary writes to
// its operands. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

namespace cuda_on_cpu {

// ---------------------------------------------------------------------------------------------------------- half precision

inline float value_of_half(unsigned bits)
{
    const unsigned sign = (bits & 0x8000) << 16, rest = bits & 0x7fff;
    if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    return std::bit_cast<float>(std::bit_cast<unsigned>(std::bit_cast<float>(rest << 13) * 0x1p112f) | sign);
}

inline unsigned half_of_value(float x)
{
    const unsigned bits = std::bit_cast<unsigned>(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    constexpr unsigned INFINITE = 0x7f800000, ROUNDS_TO_INFINITY = 0x477ff000, SMALLEST_NORMAL = 0x38800000, HALF = 0x3f000000;
    if (rest > INFINITE) return 0x7fff;
    if (rest >= ROUNDS_TO_INFINITY) return sign | 0x7c00;
    if (rest >= SMALLEST_NORMAL) return sign | (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
    return sign | (std::bit_cast<unsigned>(std::bit_cast<float>(rest) + 0.5f) - HALF);   // 0.5 has the spacing of half's subnormals
}

// ---------------------------------------------------------------------------------------------------------------- what is under way

constexpr unsigned WARPGROUP = 128, ROWS = 64, COLUMNS = 128, DEPTH = 16, REGISTERS = ROWS * COLUMNS / WARPGROUP;
constexpr unsigned MOST_WARPGROUPS = MOST_THREADS / WARPGROUP, MOST_MULTIPLIES = 256, MOST_ACCUMULATORS = 8;

constexpr unsigned PATTERN = 0x7fbadbad;       // a signalling NaN, in registers that a multiplication is under way to

struct Multiply {
    uint64_t a, b;                             // descriptors
    bool keep, a_along, b_along;
    uint32_t group, line;
    unsigned accumulator;
    bool operator==(const Multiply&) const = default;
};

// The registers of a warpgroup that multiplications are under way to, and what they will hold.
struct Accumulator {
    float* registers[WARPGROUP];
    unsigned pending;
    float sum[ROWS][COLUMNS];
};

struct Warpgroup {
    unsigned issued[WARPGROUP], committed[WARPGROUP];
    bool fenced[WARPGROUP];
    unsigned recorded, done;                   // multiplications
    unsigned waiting, left, line;              // threads at a group_wait, the groups that it leaves under way
    uint64_t round;
    Multiply multiplies[MOST_MULTIPLIES];      // by number, modulo
    Accumulator accumulators[MOST_ACCUMULATORS];
};

inline Warpgroup* warpgroups_of(Worker& w) { return reinterpret_cast<Warpgroup*>(w.extension + sizeof(Asynchronous)); }
static_assert(sizeof(Asynchronous) % alignof(Warpgroup) == 0);
static_assert(sizeof(Asynchronous) + MOST_WARPGROUPS * sizeof(Warpgroup) <= EXTENSION);

inline void begin_asynchronous(Worker& w)
{
    memset(&of_block(w), 0, offsetof(Asynchronous, copy));
    for (unsigned i = 0; i < MOST_WARPGROUPS; ++i) {
        Warpgroup& g = warpgroups_of(w)[i];
        memset(&g, 0, offsetof(Warpgroup, multiplies));
        for (Accumulator& x : g.accumulators) x.pending = 0;
    }
}

// --------------------------------------------------------------------------------------------------------- descriptors and layouts

inline unsigned row_of(unsigned thread, unsigned i) { return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8; }
inline unsigned column_of(unsigned thread, unsigned i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }

inline Warpgroup& warpgroup(unsigned line)
{
    const unsigned index = worker->current / WARPGROUP;
    if ((index + 1) * WARPGROUP > worker->count) misuse(line, "the block's last warpgroup has less than %u threads", WARPGROUP);
    return warpgroups_of(*worker)[index];
}

// An operand as a descriptor says it, all in bytes.
struct Operand {
    uint32_t start, leading, stride;

    explicit Operand(uint64_t bits) : start(field(bits)), leading(field(bits >> 16)), stride(field(bits >> 32)) {}
    static uint32_t field(uint64_t bits) { return (bits & 0x3fff) * 16; }

    // Where an element lies in the window. A line of 128 bytes holds 64 k of one row if the operand lies along k, else one k of 64 rows.
    // Line s of every eight has its part f of 16 bytes at place f ^ s.
    uint32_t at(bool along, unsigned row, unsigned k) const
    {
        const uint32_t byte = along ? start + row / 8 * stride + row % 8 * 128 + k * 2
                                    : start + row / 64 * leading + row % 64 * 2 + k / 8 * stride + k % 8 * 128;
        return byte ^ (byte >> 3 & 0x70);
    }
};

// Every thread looks at one row of an operand.
inline void check_operand(uint64_t bits, bool along, unsigned row, unsigned line)
{
    constexpr uint64_t FIELDS = 0x3fff | uint64_t(0x3fff) << 16 | uint64_t(0x3fff) << 32, SWIZZLE_128 = uint64_t(1) << 62;
    if ((bits & ~FIELDS) != SWIZZLE_128)
        misuse(line, "%#llx does not describe an operand in the 128-byte swizzle", static_cast<unsigned long long>(bits));
    const unsigned char* const at = shared_window(*worker) + Operand(bits).at(along, row, 0);
    const Asynchronous& all = of_cluster();
    for (unsigned i = 0; i < all.copies; ++i)
        if (static_cast<size_t>(at - all.copy[i].to) < all.copy[i].bytes)
            misuse(line, "the copy of line %u has yet to bring the operand", all.copy[i].line);
}

inline unsigned accumulator_of(Warpgroup& g, const float* d, unsigned thread, unsigned line)
{
    for (unsigned i = 0; i < MOST_ACCUMULATORS; ++i)
        if (g.accumulators[i].pending != 0 && g.accumulators[i].registers[thread] == d) return i;
    for (unsigned i = 0; i < MOST_ACCUMULATORS; ++i) {
        if (g.accumulators[i].pending != 0) continue;
        memset(g.accumulators[i].registers, 0, sizeof g.accumulators[i].registers);
        return i;
    }
    misuse(line, "more than %u accumulators under way", MOST_ACCUMULATORS);
}

// Its first thread records a multiplication, the others must issue the same.
inline void issue_multiply(float (&d)[REGISTERS], Multiply multiply)
{
    const unsigned thread = worker->current % WARPGROUP, line = multiply.line;
    Warpgroup& g = warpgroup(line);
    check_operand(multiply.a, multiply.a_along, thread % ROWS, line);
    check_operand(multiply.b, multiply.b_along, thread, line);
    const unsigned number = g.issued[thread]++;
    multiply.group = g.committed[thread];
    Multiply& recorded = g.multiplies[number % MOST_MULTIPLIES];
    if (number == g.recorded) {
        if (number - g.done == MOST_MULTIPLIES) misuse(line, "more than %u multiplications under way", MOST_MULTIPLIES);
        multiply.accumulator = accumulator_of(g, d, thread, line);
        g.accumulators[multiply.accumulator].pending += 1;
        recorded = multiply;
        g.recorded += 1;
    }
    multiply.accumulator = recorded.accumulator;
    if (recorded != multiply) misuse(line, "another thread of the warpgroup multiplies otherwise, in line %u", recorded.line);
    Accumulator& x = g.accumulators[recorded.accumulator];
    if (x.registers[thread] == d) return;
    if (x.registers[thread] != nullptr) misuse(line, "the threads of the warpgroup multiply into different accumulators");
    if (!g.fenced[thread]) misuse(line, "no group_fence since the registers of the accumulator could be used");
    x.registers[thread] = d;
    for (unsigned i = 0; i < REGISTERS; ++i) {
        x.sum[row_of(thread, i)][column_of(thread, i)] = d[i];
        memcpy(&d[i], &PATTERN, sizeof PATTERN);
    }
}

template <unsigned LINES>
inline void load(Worker& w, uint64_t descriptor, bool along, unsigned line, float (&to)[LINES][DEPTH])
{
    const Operand operand(descriptor);
    const uint64_t begin = uint64_t(w.dynamic_shared - shared_window(w)), end = begin + w.launch->shared_bytes;
    for (unsigned row = 0; row < LINES; ++row) {
        for (unsigned k = 0; k < DEPTH; ++k) {
            const uint32_t at = operand.at(along, row, k);
            uint16_t bits;
            if (at < begin || at + sizeof bits > end) misuse(line, "an operand outside dynamic shared memory");
            memcpy(&bits, shared_window(w) + at, sizeof bits);
            to[row][k] = value_of_half(bits);
        }
    }
}

// A model of the unit, which cuts its sums: the sixteen products and the old sum are added up exactly, as far as 53 bits hold them, and the
// bits below float's 24 are dropped.
__attribute__((optimize("O3"), no_sanitize("undefined"))) inline void multiply_add(const float (&a)[ROWS][DEPTH],
                                                                                 const float (&b)[COLUMNS][DEPTH], bool keep,
                                                                                 float (&sum)[ROWS][COLUMNS])
{
    constexpr uint64_t CUT = (uint64_t(1) << 29) - 1;
    double across[DEPTH][COLUMNS], total[COLUMNS];
    for (unsigned j = 0; j < COLUMNS; ++j)
        for (unsigned k = 0; k < DEPTH; ++k) across[k][j] = b[j][k];
    for (unsigned i = 0; i < ROWS; ++i) {
        for (unsigned j = 0; j < COLUMNS; ++j) total[j] = keep ? sum[i][j] : 0;
        for (unsigned k = 0; k < DEPTH; ++k)
            for (unsigned j = 0; j < COLUMNS; ++j) total[j] += double(a[i][k]) * across[k][j];
        for (unsigned j = 0; j < COLUMNS; ++j) sum[i][j] = float(std::bit_cast<double>(std::bit_cast<uint64_t>(total[j]) & ~CUT));
    }
}

// What is no longer under way to an accumulator shows in its registers, and they may be used again.
inline void give_registers(Worker& w, Warpgroup& g, const Accumulator& x)
{
    const Fiber* const fibers = w.fibers + (&g - warpgroups_of(w)) * WARPGROUP;
    for (unsigned thread = 0; thread < WARPGROUP; ++thread) {
        w.thread = fibers[thread].thread;
        g.fenced[thread] = false;
        for (unsigned i = 0; i < REGISTERS; ++i) {
            float& to = x.registers[thread][i];
            if (std::bit_cast<unsigned>(to) != PATTERN)
                misuse(g.line, "register %u of the accumulator was written during a multiplication", i);
            to = x.sum[row_of(thread, i)][column_of(thread, i)];
        }
    }
}

// Does what a warpgroup waits for, and lets it go on.
inline void finish_groups(Worker& w, Warpgroup& g)
{
    act_for(w, w.fibers[(&g - warpgroups_of(w)) * WARPGROUP].thread, 0);
    for (unsigned i = 1; i < WARPGROUP; ++i)
        if (g.issued[i] != g.issued[0] || g.committed[i] != g.committed[0])
            misuse(g.line, "the threads of the warpgroup issued different numbers of multiplications or groups");
    for (; g.done < g.recorded; ++g.done) {
        const Multiply& m = g.multiplies[g.done % MOST_MULTIPLIES];
        if (m.group + g.left >= g.committed[0]) break;
        float a[ROWS][DEPTH], b[COLUMNS][DEPTH];
        load(w, m.a, m.a_along, m.line, a);
        load(w, m.b, m.b_along, m.line, b);
        Accumulator& x = g.accumulators[m.accumulator];
        multiply_add(a, b, m.keep, x.sum);
        x.pending -= 1;
        if (x.pending == 0) give_registers(w, g, x);
    }
    g.waiting = 0;
    g.round += 1;
}

inline bool group_has_gone_on(const Fiber& fiber) { return reinterpret_cast<const Warpgroup*>(fiber.subject)->round != fiber.round; }

inline void wait_for_groups(unsigned left, unsigned line)
{
    Warpgroup& g = warpgroup(line);
    if (g.waiting != 0 && (g.left != left || g.line != line))
        misuse(line, "other threads of the warpgroup are at the group_wait of line %u", g.line);
    g.left = left;
    g.line = line;
    g.waiting += 1;
    wait_until(group_has_gone_on, reinterpret_cast<uint64_t>(&g), g.round, line, "group_wait");
}

// Multiplications come first: where a stage was released before them, its next copy has been issued, and they read NaN.
inline bool advance_asynchronous(Worker& leader)
{
    bool any = false;
    for (unsigned rank = 0; rank < leader.launch->cluster; ++rank) {
        Worker& w = *leader.cluster[rank];
        for (unsigned i = 0; i < w.count / WARPGROUP; ++i) {
            Warpgroup& g = warpgroups_of(w)[i];
            if (g.waiting != WARPGROUP) continue;
            finish_groups(w, g);
            any = true;
        }
    }
    return any || land_a_phase(leader);
}

static const bool is_extended = (extension = {begin_asynchronous, end_asynchronous, advance_asynchronous}, true);

}  // namespace cuda_on_cpu

// ------------------------------------------------------------------------------------------------------------- what kernels call

template <int N> inline void registers_give() { static_assert(24 <= N && N <= 256 && N % 8 == 0); }
template <int N> inline void registers_take() { static_assert(24 <= N && N <= 256 && N % 8 == 0); }

inline unsigned long long descriptor(const void* at, int leading, int stride, unsigned line = __builtin_LINE())
{
    constexpr int WINDOW = 1 << 18;
    const unsigned start = shared_address(at, line);
    if (start % 16 != 0) cuda_on_cpu::misuse(line, "the operand is not aligned to 16 bytes");
    for (const int offset : {leading, stride})
        if (offset < 0 || offset >= WINDOW || offset % 16 != 0) cuda_on_cpu::misuse(line, "%d bytes are no offset of a descriptor", offset);
    return start / 16 | (unsigned long long)(leading / 16) << 16 | (unsigned long long)(stride / 16) << 32 | 1ull << 62;
}

inline void group_fence(unsigned line = __builtin_LINE())
{
    cuda_on_cpu::warpgroup(line).fenced[cuda_on_cpu::worker->current % cuda_on_cpu::WARPGROUP] = true;
}
inline void group_commit(unsigned line = __builtin_LINE())
{
    cuda_on_cpu::warpgroup(line).committed[cuda_on_cpu::worker->current % cuda_on_cpu::WARPGROUP] += 1;
}
template <int N> inline void group_wait(unsigned line = __builtin_LINE())
{
    static_assert(0 <= N && N <= 7);
    cuda_on_cpu::wait_for_groups(N, line);
}
template <int ALONG_A, int ALONG_B>
inline void group_multiply(float (&d)[64], unsigned long long a, unsigned long long b, bool keep, unsigned line = __builtin_LINE())
{
    cuda_on_cpu::issue_multiply(d, {a, b, keep, ALONG_A != 0, ALONG_B != 0, 0, line, 0});
}

inline unsigned short half_bits(float x) { return static_cast<unsigned short>(cuda_on_cpu::half_of_value(x)); }
inline float half_value(unsigned short bits) { return cuda_on_cpu::value_of_half(bits); }
