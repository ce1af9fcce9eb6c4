// Hopper's asynchronous matrix instructions on a CPU, as the functions that kernels call them by. Included after units_on_cpu.h.
//
// The threads of a warpgroup issue a multiplication; from then on the registers of its accumulator hold a pattern, a signalling NaN in
// float32. At a group_wait shared memory is read and the registers get their values. Not modelled: the fence that a multiplication needs
// after ordinary writes to its operands. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

namespace cuda_on_cpu {

// ---------------------------------------------------------------------------------------------------------------- what is under way

constexpr unsigned MOST_WARPGROUPS = MOST_THREADS / WARPGROUP, MOST_MULTIPLIES = 256, MOST_ACCUMULATORS = 8, MOST_HELD = 16;

constexpr unsigned PATTERN = 0x7fbadbad;       // a signalling NaN, in registers that a multiplication is under way to

inline void* register_at(void* d, unsigned i) { return static_cast<unsigned char*>(d) + i * sizeof PATTERN; }

struct Multiply {
    const Unit* unit;
    uint64_t a, b;                             // descriptors
    bool is_held;                              // the first operand lies in registers
    bool keep, a_along, b_along;
    uint32_t group, line;
    unsigned accumulator;
    bool operator==(const Multiply&) const = default;
};

// The registers of a warpgroup that multiplications are under way to, and what they will hold.
struct Accumulator {
    void* registers[WARPGROUP];
    unsigned pending;
    uint32_t sum[ROWS][MOST_COLUMNS];
};

// The first operand of a multiplication in registers, which keep it until that is done.
struct Held {
    const unsigned* registers[WARPGROUP];
    uint16_t value[ROWS][TERMS];
};

struct Warpgroup {
    unsigned issued[WARPGROUP], committed[WARPGROUP];
    bool fenced[WARPGROUP];
    unsigned recorded, done;                   // multiplications
    unsigned waiting, left, line;              // threads at a group_wait, the groups that it leaves under way
    uint64_t round;
    Multiply multiplies[MOST_MULTIPLIES];      // by number, modulo
    Accumulator accumulators[MOST_ACCUMULATORS];
    Held held[MOST_HELD];                      // by number of the multiplication, modulo
};

inline Warpgroup* warpgroups_of(Worker& w) { return reinterpret_cast<Warpgroup*>(w.extension + sizeof(Asynchronous)); }
static_assert(sizeof(Asynchronous) % alignof(Warpgroup) == 0);
static_assert(sizeof(Asynchronous) + MOST_WARPGROUPS * sizeof(Warpgroup) <= EXTENSION);

CUDA_ON_CPU_ONCE void begin_asynchronous(Worker& w)
{
    memset(&of_block(w), 0, offsetof(Asynchronous, copy));
    for (unsigned i = 0; i < MOST_WARPGROUPS; ++i) {
        Warpgroup& g = warpgroups_of(w)[i];
        memset(&g, 0, offsetof(Warpgroup, multiplies));
        for (Accumulator& x : g.accumulators) x.pending = 0;
    }
}

// ------------------------------------------------------------------------------------------------------------------ issuing

CUDA_ON_CPU_ONCE Warpgroup& warpgroup(unsigned line)
{
    const unsigned index = worker->current / WARPGROUP;
    if ((index + 1) * WARPGROUP > worker->count) misuse(line, "the block's last warpgroup has less than %u threads", WARPGROUP);
    return warpgroups_of(*worker)[index];
}

// Every thread looks at some rows of an operand.
CUDA_ON_CPU_ONCE void check_operand(const Unit& unit, uint64_t bits, bool along, unsigned row, unsigned line)
{
    constexpr uint64_t FIELDS = 0x3fff | uint64_t(0x3fff) << 16 | uint64_t(0x3fff) << 32, SWIZZLE_128 = uint64_t(1) << 62;
    if ((bits & ~FIELDS) != SWIZZLE_128)
        misuse(line, "%#llx does not describe an operand in the 128-byte swizzle", static_cast<unsigned long long>(bits));
    const unsigned char* const at = shared_window(*worker) + Operand(bits).at(along, row, 0, unit.bytes);
    const Asynchronous& all = of_cluster();
    for (unsigned i = 0; i < all.copies; ++i)
        if (static_cast<size_t>(at - all.copy[i].to) < all.copy[i].bytes)
            misuse(line, "the copy of line %u has yet to bring the operand", all.copy[i].line);
}

CUDA_ON_CPU_ONCE unsigned accumulator_of(Warpgroup& g, const void* d, unsigned thread, unsigned line)
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

inline uint16_t half_of_part(unsigned word, unsigned which) { return static_cast<uint16_t>(word >> 16 * which); }

CUDA_ON_CPU_ONCE void hold(Warpgroup& g, unsigned number, unsigned thread, const unsigned* a, unsigned line)
{
    if (number - g.done >= MOST_HELD) misuse(line, "more than %u multiplications of registers under way", MOST_HELD);
    if (!g.fenced[thread]) misuse(line, "no group_fence since the registers of the operand could be used");
    Held& to = g.held[number % MOST_HELD];
    to.registers[thread] = a;
    for (unsigned part = 0; part < PARTS; ++part)
        for (unsigned which = 0; which < 2; ++which)
            to.value[row_of_part(thread, part)][term_of_part(thread, part) + which] = half_of_part(a[part], which);
}

// What was in the registers of an operand must be there still.
CUDA_ON_CPU_ONCE void check_held(Worker& w, const Warpgroup& g, const Held& held)
{
    const Fiber* const fibers = w.fibers + (&g - warpgroups_of(w)) * WARPGROUP;
    for (unsigned thread = 0; thread < WARPGROUP; ++thread)
        for (unsigned part = 0; part < PARTS; ++part)
            for (unsigned which = 0; which < 2; ++which) {
                if (held.value[row_of_part(thread, part)][term_of_part(thread, part) + which] == half_of_part(held.registers[thread][part], which)) continue;
                w.thread = fibers[thread].thread;
                misuse(g.line, "register %u of the operand was written during a multiplication", part);
            }
}

// Its first thread records a multiplication, the others must issue the same; `a` are the registers of its first operand, if it lies there.
CUDA_ON_CPU_ONCE void issue_multiply(void* d, Multiply multiply, const unsigned* a = nullptr)
{
    const unsigned thread = worker->current % WARPGROUP, line = multiply.line;
    const Unit& unit = *multiply.unit;
    Warpgroup& g = warpgroup(line);
    if (a == nullptr) check_operand(unit, multiply.a, multiply.a_along, thread % ROWS, line);
    for (unsigned row = thread; row < unit.columns; row += WARPGROUP) check_operand(unit, multiply.b, multiply.b_along, row, line);
    const unsigned number = g.issued[thread]++;
    multiply.group = g.committed[thread];
    if (a != nullptr) hold(g, number, thread, a, line);
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
    for (unsigned i = 0; i < unit.registers(); ++i) {
        memcpy(&x.sum[row_of(thread, i)][column_of(thread, i)], register_at(d, i), sizeof PATTERN);
        memcpy(register_at(d, i), &PATTERN, sizeof PATTERN);
    }
}

// What is no longer under way to an accumulator shows in its registers, and they may be used again.
CUDA_ON_CPU_ONCE void give_registers(Worker& w, Warpgroup& g, const Unit& unit, const Accumulator& x)
{
    const Fiber* const fibers = w.fibers + (&g - warpgroups_of(w)) * WARPGROUP;
    for (unsigned thread = 0; thread < WARPGROUP; ++thread) {
        w.thread = fibers[thread].thread;
        g.fenced[thread] = false;
        for (unsigned i = 0; i < unit.registers(); ++i) {
            void* const to = register_at(x.registers[thread], i);
            if (memcmp(to, &PATTERN, sizeof PATTERN) != 0)
                misuse(g.line, "register %u of the accumulator was written during a multiplication", i);
            memcpy(to, &x.sum[row_of(thread, i)][column_of(thread, i)], sizeof PATTERN);
        }
    }
}

// Does what a warpgroup waits for, and lets it go on.
CUDA_ON_CPU_ONCE void finish_groups(Worker& w, Warpgroup& g)
{
    act_for(w, w.fibers[(&g - warpgroups_of(w)) * WARPGROUP].thread, 0);
    for (unsigned i = 1; i < WARPGROUP; ++i)
        if (g.issued[i] != g.issued[0] || g.committed[i] != g.committed[0])
            misuse(g.line, "the threads of the warpgroup issued different numbers of multiplications or groups");
    for (; g.done < g.recorded; ++g.done) {
        const Multiply& m = g.multiplies[g.done % MOST_MULTIPLIES];
        if (m.group + g.left >= g.committed[0]) break;
        Accumulator& x = g.accumulators[m.accumulator];
        const Held* const held = m.is_held ? &g.held[g.done % MOST_HELD] : nullptr;
        if (held != nullptr) check_held(w, g, *held);
        m.unit->multiply({w, Operand(m.a), Operand(m.b), m.keep, m.a_along, m.b_along, m.line, held == nullptr ? nullptr : held->value}, x.sum);
        x.pending -= 1;
        if (x.pending == 0) give_registers(w, g, *m.unit, x);
    }
    g.waiting = 0;
    g.round += 1;
}

inline bool group_has_gone_on(const Fiber& fiber) { return reinterpret_cast<const Warpgroup*>(fiber.subject)->round != fiber.round; }

CUDA_ON_CPU_ONCE void wait_for_groups(unsigned left, unsigned line)
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
CUDA_ON_CPU_ONCE bool advance_asynchronous(Worker& leader)
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

#ifdef CUDA_ON_CPU_RUNTIME
static const bool is_extended = (extension = {begin_asynchronous, end_asynchronous, advance_asynchronous}, true);
#endif

}  // namespace cuda_on_cpu

// ------------------------------------------------------------------------------------------------------------- what kernels call

template <int N> inline void registers_give() { static_assert(24 <= N && N <= 256 && N % 8 == 0); }
template <int N> inline void registers_take() { static_assert(24 <= N && N <= 256 && N % 8 == 0); }

CUDA_ON_CPU_ONCE unsigned long long descriptor(const void* at, int leading, int stride, unsigned line = __builtin_LINE())
{
    constexpr int WINDOW = 1 << 18;
    const unsigned start = shared_address(at, line);
    if (start % 16 != 0) cuda_on_cpu::misuse(line, "the operand is not aligned to 16 bytes");
    for (const int offset : {leading, stride})
        if (offset < 0 || offset >= WINDOW || offset % 16 != 0) cuda_on_cpu::misuse(line, "%d bytes are no offset of a descriptor", offset);
    return start / 16 | (unsigned long long)(leading / 16) << 16 | (unsigned long long)(stride / 16) << 32 | 1ull << 62;
}

CUDA_ON_CPU_ONCE void group_fence(unsigned line = __builtin_LINE())
{
    cuda_on_cpu::warpgroup(line).fenced[cuda_on_cpu::worker->current % cuda_on_cpu::WARPGROUP] = true;
}
CUDA_ON_CPU_ONCE void group_commit(unsigned line = __builtin_LINE())
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
    cuda_on_cpu::issue_multiply(d, {&cuda_on_cpu::FLOAT16, a, b, false, keep, ALONG_A != 0, ALONG_B != 0, 0, line, 0});
}
template <int ALONG_B>
inline void group_multiply(float (&d)[64], const unsigned (&a)[4], unsigned long long b, bool keep, unsigned line = __builtin_LINE())
{
    cuda_on_cpu::issue_multiply(d, {&cuda_on_cpu::FLOAT16, 0, b, true, keep, true, ALONG_B != 0, 0, line, 0}, a);
}
template <unsigned SUMS>
inline void group_bfloat16(float (&d)[SUMS], const unsigned (&a)[4], unsigned long long b, bool keep, unsigned line = __builtin_LINE())
{
    cuda_on_cpu::issue_multiply(d, {&cuda_on_cpu::BFLOAT16<2 * SUMS>, 0, b, true, keep, true, true, 0, line, 0}, a);
}
inline void group_bfloat16(float (&d)[64], unsigned long long a, unsigned long long b, bool keep, unsigned line = __builtin_LINE())
{
    cuda_on_cpu::issue_multiply(d, {&cuda_on_cpu::BFLOAT16<128>, a, b, false, keep, true, true, 0, line, 0});
}
CUDA_ON_CPU_ONCE void group_multiply(int (&d)[128], unsigned long long a, unsigned long long b, bool keep, unsigned line = __builtin_LINE())
{
    cuda_on_cpu::issue_multiply(d, {&cuda_on_cpu::INT8, a, b, false, keep, true, true, 0, line, 0});
}

inline void held(unsigned (&)[4]) {}

// Two bfloat16 in a word, rounded to nearest, ties to even.
CUDA_ON_CPU_ONCE unsigned bfloat16_pair(float first, float second)
{
    const auto upper = [](float x) {
        const unsigned bits = std::bit_cast<unsigned>(x);
        return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    };
    return upper(first) | upper(second) << 16;
}
inline unsigned short half_bits(float x) { return static_cast<unsigned short>(cuda_on_cpu::half_of_value(x)); }
inline float half_value(unsigned short bits) { return cuda_on_cpu::value_of_half(bits); }
