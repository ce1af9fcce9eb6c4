// magnitudes_double: the largest |x| of every block of a matrix, as the bits of a nonnegative double.
typedef unsigned long long Bits;
typedef long long Index;

// X is read as integers: without their sign, floats are in the order of their bits, and Inf and NaN are above all finite ones.
// blockIdx.y numbers the blocks of X, row by row; each of the gridDim.x blocks of threads that share one writes its own result.
extern "C" __global__ void __launch_bounds__(256)
magnitudes_double(const Bits* X, Index X_rs, Index X_cs, Index rows, Index columns, Index across, Bits* largest)
{
    const Bits* const block = X + blockIdx.y / across * rows * X_rs + blockIdx.y % across * columns * X_cs;
    Bits most = 0;
    const bool by_row = X_cs == 1;
    const Index slow = by_row ? rows : columns, fast = by_row ? columns : rows;
    const Index outer = by_row ? X_rs : X_cs, inner = by_row ? X_cs : X_rs;
    for (Index i = blockIdx.x; i < slow; i += gridDim.x)
        for (Index j = threadIdx.x; j < fast; j += blockDim.x) {
            const Bits x = block[i * outer + j * inner] & (~Bits(0) >> 1);
            if (x > most) most = x;
        }
    __shared__ Bits found[256];
    found[threadIdx.x] = most;
    for (unsigned half = 256 / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half && found[threadIdx.x + half] > found[threadIdx.x]) found[threadIdx.x] = found[threadIdx.x + half];
    }
    if (threadIdx.x == 0) largest[Index(blockIdx.y) * gridDim.x + blockIdx.x] = found[0];
}
