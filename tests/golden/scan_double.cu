// scan_double: sets *found to 1 where a matrix has an Inf or a NaN, and leaves it alone otherwise.
typedef double Real;
typedef long long Index;

extern "C" __global__ void __launch_bounds__(256)
scan_double(Real* X, Index X_rs, Index X_cs, Index rows, Index columns, int* found)
{
    bool bad = false;
    const bool by_row = X_cs == 1;
    const Index slow = by_row ? rows : columns, fast = by_row ? columns : rows;
    const Index outer = by_row ? X_rs : X_cs, inner = by_row ? X_cs : X_rs;
    for (Index i = blockIdx.x; i < slow; i += gridDim.x)
        for (Index j = threadIdx.x; j < fast; j += blockDim.x) {
            // x - x is 0 for every finite x, and NaN for Inf and NaN.
            const Real x = X[i * outer + j * inner];
            bad = bad || !(x - x == Real(0));
        }
    if (bad) *found = 1;    // every thread that writes writes the same value
}
