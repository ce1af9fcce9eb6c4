// The units of Hopper's matrix instructions on a CPU: the layouts of operands in shared memory and of sums in registers, and how float16 and
// int8 are multiplied. Included after hopper_on_cpu.h. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

namespace cuda_on_cpu {

// ---------------------------------------------------------------------------------------------------------- half precision

CUDA_ON_CPU_ONCE float value_of_half(uint16_t bits)
{
    const unsigned sign = unsigned(bits & 0x8000) << 16, rest = bits & 0x7fff;
    if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    return std::bit_cast<float>(std::bit_cast<unsigned>(std::bit_cast<float>(rest << 13) * 0x1p112f) | sign);
}

CUDA_ON_CPU_ONCE unsigned half_of_value(float x)
{
    const unsigned bits = std::bit_cast<unsigned>(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    constexpr unsigned INFINITE = 0x7f800000, ROUNDS_TO_INFINITY = 0x477ff000, SMALLEST_NORMAL = 0x38800000, HALF = 0x3f000000;
    if (rest > INFINITE) return 0x7fff;
    if (rest >= ROUNDS_TO_INFINITY) return sign | 0x7c00;
    if (rest >= SMALLEST_NORMAL) return sign | (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
    return sign | (std::bit_cast<unsigned>(std::bit_cast<float>(rest) + 0.5f) - HALF);   // 0.5 has the spacing of half's subnormals
}

// ------------------------------------------------------------------------------------------------------------------ layouts

constexpr unsigned WARPGROUP = 128, ROWS = 64, MOST_COLUMNS = 256;

inline unsigned row_of(unsigned thread, unsigned i) { return thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8; }
inline unsigned column_of(unsigned thread, unsigned i) { return i / 4 * 8 + thread % 4 * 2 + i % 2; }

// An operand as a descriptor says it, all in bytes.
struct Operand {
    uint32_t start, leading, stride;

    explicit Operand(uint64_t bits) : start(field(bits)), leading(field(bits >> 16)), stride(field(bits >> 32)) {}
    static uint32_t field(uint64_t bits) { return (bits & 0x3fff) * 16; }

    // Where an element of `bytes` bytes lies in the window. A line of 128 bytes holds the k of one row if the operand lies along k, else
    // (for elements of two bytes) one k of 64 rows. Line s of every eight has its part f of 16 bytes at place f ^ s.
    uint32_t at(bool along, unsigned row, unsigned k, unsigned bytes) const
    {
        const uint32_t byte = along ? start + row / 8 * stride + row % 8 * 128 + k * bytes
                                    : start + row / 64 * leading + row % 64 * 2 + k / 8 * stride + k % 8 * 128;
        return byte ^ (byte >> 3 & 0x70);
    }
};

// A first operand of 16 terms in registers, as halves: a thread holds neighbours t and t + 1 of rows r, r + 8, then those 8 terms on.
constexpr unsigned TERMS = 16, PARTS = 4;
inline unsigned row_of_part(unsigned thread, unsigned part) { return thread / 32 * 16 + thread % 32 / 4 + part % 2 * 8; }
inline unsigned term_of_part(unsigned thread, unsigned part) { return thread % 4 * 2 + part / 2 * 8; }

// One multiplication: sum = a * b, plus what it was if that is kept. `held` is the first operand if it lies in registers.
struct Work {
    Worker& w;
    Operand a, b;
    bool keep, a_along, b_along;
    unsigned line;
    const uint16_t (*held)[TERMS];

    template <class Element, class Value, unsigned LINES, unsigned DEPTH>
    void load(const Operand& operand, bool along, Value (&to)[LINES][DEPTH], Value (&value_of)(Element)) const
    {
        const uint64_t begin = uint64_t(w.dynamic_shared - shared_window(w)), end = begin + w.launch->shared_bytes;
        for (unsigned row = 0; row < LINES; ++row) {
            for (unsigned k = 0; k < DEPTH; ++k) {
                const uint32_t at = operand.at(along, row, k, sizeof(Element));
                Element bits;
                if (at < begin || at + sizeof bits > end) misuse(line, "an operand outside dynamic shared memory");
                memcpy(&bits, shared_window(w) + at, sizeof bits);
                to[row][k] = value_of(bits);
            }
        }
    }
};

// Sums are words, in the layout of the instruction's registers.
struct Unit {
    unsigned columns, bytes;                   // of the result; of an element
    void (*multiply)(const Work&, uint32_t (&sum)[ROWS][MOST_COLUMNS]);

    constexpr unsigned registers() const { return ROWS * columns / WARPGROUP; }
};

// -------------------------------------------------------------------------------------------------------------------- units

inline int value_of_byte(int8_t byte) { return byte; }

inline float value_of_bfloat16(uint16_t bits) { return std::bit_cast<float>(unsigned(bits) << 16); }

// A model of the units for float16 and bfloat16, which cut their sums: the sixteen products and the old sum are added up exactly, as far as 53
// bits hold them, and the bits below float's 24 are dropped.
template <unsigned COLUMNS, float (&value_of)(uint16_t)>
__attribute__((optimize("O3"), no_sanitize("undefined"))) inline void multiply_halves(const Work& work, uint32_t (&sum)[ROWS][MOST_COLUMNS])
{
    constexpr unsigned DEPTH = 16;
    constexpr uint64_t CUT = (uint64_t(1) << 29) - 1;
    float a[ROWS][DEPTH], b[COLUMNS][DEPTH];
    if (work.held == nullptr) work.load(work.a, work.a_along, a, value_of);
    for (unsigned i = 0; i < ROWS && work.held != nullptr; ++i)
        for (unsigned k = 0; k < DEPTH; ++k) a[i][k] = value_of(work.held[i][k]);
    work.load(work.b, work.b_along, b, value_of);
    double across[DEPTH][COLUMNS], total[COLUMNS];
    for (unsigned j = 0; j < COLUMNS; ++j)
        for (unsigned k = 0; k < DEPTH; ++k) across[k][j] = b[j][k];
    for (unsigned i = 0; i < ROWS; ++i) {
        for (unsigned j = 0; j < COLUMNS; ++j) total[j] = work.keep ? std::bit_cast<float>(sum[i][j]) : 0;
        for (unsigned k = 0; k < DEPTH; ++k)
            for (unsigned j = 0; j < COLUMNS; ++j) total[j] += double(a[i][k]) * across[k][j];
        for (unsigned j = 0; j < COLUMNS; ++j)
            sum[i][j] = std::bit_cast<uint32_t>(float(std::bit_cast<double>(std::bit_cast<uint64_t>(total[j]) & ~CUT)));
    }
}

// The unit for int8: its sums in int32 wrap around.
__attribute__((optimize("O3"), no_sanitize("undefined"))) CUDA_ON_CPU_ONCE void multiply_int8(const Work& work, uint32_t (&sum)[ROWS][MOST_COLUMNS])
{
    constexpr unsigned COLUMNS = 256, DEPTH = 32;
    int a[ROWS][DEPTH], b[COLUMNS][DEPTH];
    work.load(work.a, true, a, value_of_byte);
    work.load(work.b, true, b, value_of_byte);
    uint32_t across[DEPTH][COLUMNS];
    for (unsigned j = 0; j < COLUMNS; ++j)
        for (unsigned k = 0; k < DEPTH; ++k) across[k][j] = uint32_t(b[j][k]);
    for (unsigned i = 0; i < ROWS; ++i) {
        for (unsigned j = 0; j < COLUMNS && !work.keep; ++j) sum[i][j] = 0;
        for (unsigned k = 0; k < DEPTH; ++k)
            for (unsigned j = 0; j < COLUMNS; ++j) sum[i][j] += uint32_t(a[i][k]) * across[k][j];
    }
}

#ifdef CUDA_ON_CPU_RUNTIME
template void multiply_halves<128, value_of_half>(const Work&, uint32_t (&)[ROWS][MOST_COLUMNS]);
#else
extern template void multiply_halves<128, value_of_half>(const Work&, uint32_t (&)[ROWS][MOST_COLUMNS]);
#endif
template <unsigned COLUMNS> inline constexpr Unit BFLOAT16 = {COLUMNS, 2, multiply_halves<COLUMNS, value_of_bfloat16>};
inline constexpr Unit FLOAT16 = {128, 2, multiply_halves<128, value_of_half>}, INT8 = {256, 1, multiply_int8};

}  // namespace cuda_on_cpu
