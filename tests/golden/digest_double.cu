// digest_double: a sum over a matrix that changes with it, modulo 2^64: of each element's bits, mixed with its place.
typedef unsigned long long Bits;
typedef long long Index;
typedef unsigned long long Word;

extern "C" __global__ void __launch_bounds__(256)
digest_double(double* X, Index X_rs, Index X_cs, Index rows, Index columns, double* sums)
{
    const Bits* const bits = reinterpret_cast<const Bits*>(X);
    Word sum = 0;
    const bool by_row = X_cs == 1;
    const Index slow = by_row ? rows : columns, fast = by_row ? columns : rows;
    const Index outer = by_row ? X_rs : X_cs, inner = by_row ? X_cs : X_rs;
    for (Index i = blockIdx.x; i < slow; i += gridDim.x)
        for (Index j = threadIdx.x; j < fast; j += blockDim.x) {
            // Odd factors lose no bits; the shift brings the high bits of a product down, where the next one spreads them.
            Word x = (bits[i * outer + j * inner] + 1ull) * 0x9e3779b97f4a7c15ull + Word(i * fast + j) * 0xd1b54a32d192ed03ull;
            x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
            sum += x ^ x >> 32;
        }
    __shared__ Word found[256];
    found[threadIdx.x] = sum;
    for (unsigned half = 256 / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) found[threadIdx.x] += found[threadIdx.x + half];
    }
    if (threadIdx.x == 0) reinterpret_cast<Word*>(sums)[blockIdx.x] = found[0];
}
