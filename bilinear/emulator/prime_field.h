// An element type for emitted text: numbers modulo the prime p = 2^61 - 1. A run then evaluates, exactly, the polynomials that the text
// computes in whatever it is given.
#pragma once

namespace cuda_on_cpu {

// The residue in the low 61 bits; above them the formal degree of the polynomial that it is a value of, where 7 is undefined. All ones,
// as memory is that nothing was written to, is undefined; so is all that comes of it, and every degree above 6.
class Field {
    static constexpr uint64_t PRIME = (uint64_t(1) << 61) - 1;
    static constexpr unsigned UNDEFINED_DEGREE = 7;
    uint64_t word;

    struct Raw { uint64_t word; };
    constexpr explicit Field(Raw raw) : word(raw.word) {}

    // A word of a value up to 2^62 and a degree up to 14.
    static constexpr Field make(uint64_t value, unsigned degree)
    {
        value = (value & PRIME) + (value >> 61);
        value = value >= PRIME ? value - PRIME : value;
        return Field(Raw{uint64_t(degree < UNDEFINED_DEGREE ? degree : UNDEFINED_DEGREE) << 61 | value});
    }
    static constexpr unsigned larger(unsigned a, unsigned b) { return a < b ? b : a; }

public:
    Field() = default;
    template <class T> requires std::is_integral_v<T>
    constexpr explicit Field(T value)
        : word(value < 0 ? (PRIME - (uint64_t(0) - uint64_t(value)) % PRIME) % PRIME : uint64_t(value) % PRIME) {}
    explicit Field(double) = delete;    // no number of the field is near another
    // A rational, as "-12/345".
    constexpr explicit Field(const char* text) : word(0)
    {
        const bool is_negative = *text == '-';
        Field top(0), bottom(1);
        for (text += is_negative; *text && *text != '/'; ++text) top = top * Field(10) + Field(*text - '0');
        if (*text == '/') for (bottom = Field(0), ++text; *text; ++text) bottom = bottom * Field(10) + Field(*text - '0');
        *this = (is_negative ? -top : top) / bottom;
    }

    constexpr uint64_t value() const { return word & PRIME; }
    constexpr unsigned degree() const { return unsigned(word >> 61); }

    friend constexpr Field operator+(Field a, Field b) { return make(a.value() + b.value(), larger(a.degree(), b.degree())); }
    friend constexpr Field operator-(Field a, Field b) { return make(a.value() + (PRIME - b.value()), larger(a.degree(), b.degree())); }
    friend constexpr Field operator*(Field a, Field b)
    {
        const unsigned __int128 product = static_cast<unsigned __int128>(a.value()) * b.value();
        return make((uint64_t(product) & PRIME) + uint64_t(product >> 61), a.degree() + b.degree());
    }
    // By constants, through their inverses; everything else is undefined.
    friend constexpr Field operator/(Field a, Field b)
    {
        if (b.degree() != 0 || b.value() == 0) return Field(Raw{~uint64_t(0)});
        Field inverse(1), power = b;
        for (uint64_t exponent = PRIME - 2; exponent != 0; exponent >>= 1) {
            if (exponent & 1) inverse = inverse * power;
            power = power * power;
        }
        return a * inverse;
    }
    constexpr Field operator-() const { return Field(0) - *this; }
    constexpr Field operator+() const { return *this; }
    constexpr Field& operator+=(Field other) { return *this = *this + other; }
    constexpr Field& operator-=(Field other) { return *this = *this - other; }
    constexpr Field& operator*=(Field other) { return *this = *this * other; }
    constexpr Field& operator/=(Field other) { return *this = *this / other; }
    // What is undefined equals nothing, itself included.
    friend constexpr bool operator==(Field a, Field b)
    {
        return a.value() == b.value() && a.degree() != UNDEFINED_DEGREE && b.degree() != UNDEFINED_DEGREE;
    }
    friend constexpr Field fma(Field a, Field b, Field c) { return a * b + c; }
};

static_assert(sizeof(Field) == 8 && std::is_trivially_default_constructible_v<Field> && std::is_trivially_copyable_v<Field>);

}  // namespace cuda_on_cpu
