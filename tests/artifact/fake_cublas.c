/* cuBLAS in the host's memory, by definition: C = alpha * op(A) * op(B) + beta * C, column by column. `fake_products` counts what it did; of 16 bits
   it only counts. */
#include <complex.h>
#include <stdint.h>
#include <stdlib.h>

struct handle {
    int pointers, math;
    void *stream;
};
int fake_products;

int cublasCreate_v2(struct handle **handle)
{
    *handle = calloc(1, sizeof **handle);
    return *handle == NULL;
}
int cublasSetPointerMode_v2(struct handle *handle, int mode) { return handle->pointers = mode, 0; }
int cublasSetMathMode(struct handle *handle, int mode) { return handle->math = mode, 0; }
int cublasGetPointerMode_v2(struct handle *handle, int *mode) { return *mode = handle->pointers, 0; }
int cublasGetMathMode(struct handle *handle, int *mode) { return *mode = handle->math, 0; }
int cublasGetStream_v2(struct handle *handle, void **stream) { return *stream = handle->stream, 0; }

#define SAME(x) (x)
#define PRODUCT(type, conjugate)                                                                                                        \
    for (int64_t j = 0; j < n; ++j)                                                                                                     \
        for (int64_t i = 0; i < m; ++i) {                                                                                               \
            const type *x = a, *y = b, *scale = alpha, *keep = beta;                                                                    \
            type *z = (type *)c + i + j * ldc, sum = 0;                                                                                 \
            for (int64_t l = 0; l < k; ++l) {                                                                                           \
                type p = x[ta ? l + i * lda : i + l * lda], q = y[tb ? j + l * ldb : l + j * ldb];                                      \
                sum += (ta == 2 ? conjugate(p) : p) * (tb == 2 ? conjugate(q) : q);                                                     \
            }                                                                                                                           \
            *z = *keep == 0 ? *scale * sum : *scale * sum + *keep * *z;                                                                 \
        }

static int product(int type, int ta, int tb, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a, int64_t lda, const void *b,
                   int64_t ldb, const void *beta, void *c, int64_t ldc)
{
    __atomic_add_fetch(&fake_products, 1, __ATOMIC_RELAXED); /* by several threads at once */
    if (type == 0)
        PRODUCT(float, SAME)
    else if (type == 1)
        PRODUCT(double, SAME)
    else if (type == 4)
        PRODUCT(float complex, conjf)
    else if (type == 5)
        PRODUCT(double complex, conj)
    return 0;
}

#define GEMM(letter, number, size)                                                                                                      \
    int cublas##letter##gemm_v2(struct handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int lda,       \
                                const void *b, int ldb, const void *beta, void *c, int ldc)                                             \
    {                                                                                                                                   \
        return (void)h, product(number, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                          \
    }                                                                                                                                   \
    int cublas##letter##gemmStridedBatched_64(struct handle *h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void *alpha,     \
                                              const char *a, int64_t lda, long long sa, const char *b, int64_t ldb, long long sb,       \
                                              const void *beta, char *c, int64_t ldc, long long sc, int64_t batch)                      \
    {                                                                                                                                   \
        for (int64_t i = 0; i < batch; ++i)                                                                                             \
            product(number, ta, tb, m, n, k, alpha, a + i * sa * size, lda, b + i * sb * size, ldb, beta, c + i * sc * size, ldc);      \
        return (void)h, 0;                                                                                                              \
    }
#define SYRK(letter, type)                                                                                                              \
    int cublas##letter##syrk_v2_64(struct handle *h, int uplo, int trans, int64_t n, int64_t k, const type *alpha, const type *a,       \
                                   int64_t lda, const type *beta, type *c, int64_t ldc)                                                 \
    {                                                                                                                                   \
        __atomic_add_fetch(&fake_products, 1, __ATOMIC_RELAXED);                                                                        \
        for (int64_t j = 0; j < n; ++j)                                                                                                 \
            for (int64_t i = uplo ? 0 : j; i < (uplo ? j + 1 : n); ++i) {                                                               \
                type sum = 0;                                                                                                           \
                for (int64_t l = 0; l < k; ++l)                                                                                         \
                    sum += trans ? a[l + i * lda] * a[l + j * lda] : a[i + l * lda] * a[j + l * lda];                                   \
                c[i + j * ldc] = *beta == 0 ? *alpha * sum : *alpha * sum + *beta * c[i + j * ldc];                                     \
            }                                                                                                                           \
        return (void)h, 0;                                                                                                              \
    }                                                                                                                                   \
    int cublas##letter##syrk_v2(struct handle *h, int uplo, int trans, int n, int k, const type *alpha, const type *a, int lda,         \
                                const type *beta, type *c, int ldc)                                                                     \
    {                                                                                                                                   \
        return cublas##letter##syrk_v2_64(h, uplo, trans, n, k, alpha, a, lda, beta, c, ldc);                                           \
    }
SYRK(S, float)
SYRK(D, double)
GEMM(S, 0, 4)
GEMM(D, 1, 8)
GEMM(C, 4, 8)
GEMM(Z, 5, 16)

int cublasGemmEx(struct handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda, const void *b,
                 int bt, int ldb, const void *beta, void *c, int ct, int ldc, int compute, int algorithm)
{
    return (void)h, (void)bt, (void)ct, (void)compute, (void)algorithm,
           product(at, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

/* cublasLt: a description is its attributes, each as 8 bytes. */
static int attribute(const int64_t *of, int which, void *out, size_t bytes, size_t *written)
{
    (void)written;
    if (which > 7)
        return 7;
    return bytes == 4 ? (*(int32_t *)out = (int32_t)of[which], 0) : (*(int64_t *)out = of[which], 0);
}
int cublasLtMatmulDescGetAttribute(const int64_t *how, int which, void *out, size_t bytes, size_t *written)
{
    return attribute(how, which, out, bytes, written);
}
int cublasLtMatrixLayoutGetAttribute(const int64_t *layout, int which, void *out, size_t bytes, size_t *written)
{
    return attribute(layout, which, out, bytes, written);
}
int cublasLtMatmul(void *h, const int64_t *how, const void *alpha, const void *a, const int64_t *at, const void *b, const int64_t *bt,
                   const void *beta, const void *c, const int64_t *ct, void *d, const int64_t *dt, const void *algorithm, void *workspace,
                   size_t bytes, void *stream)
{
    (void)h, (void)c, (void)ct, (void)algorithm, (void)workspace, (void)bytes, (void)stream;
    return product((int)at[0], (int)how[3], (int)how[4], dt[2], dt[3], how[3] ? at[2] : at[3], alpha, a, at[4], b, bt[4], beta, d, dt[4]);
}
