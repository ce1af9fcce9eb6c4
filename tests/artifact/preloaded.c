/* A program without Python that is linked with cuBLAS: C = 2 A B + C on integers, by four threads at once, twice each. Prints what cuBLAS
   multiplied itself, and how many elements of C are wrong. */
#include <pthread.h>
#include <stdio.h>

enum { N = 24, LD = N + 3 };
extern int fake_products;
int cublasCreate_v2(void **handle);
int cublasDgemm_v2(void *handle, int ta, int tb, int m, int n, int k, const double *alpha, const double *a, int lda, const double *b, int ldb,
                   const double *beta, double *c, int ldc);

static void *multiply(void *result)
{
    static double a[LD * N], b[LD * N];
    double c[LD * N], two = 2, one = 1;
    void *handle;
    long wrong = 0;
    for (int i = 0; i < LD * N; ++i)
        a[i] = i % 7 - 3, b[i] = i % 5 - 2, c[i] = i % 3;
    cublasCreate_v2(&handle);
    for (int time = 1; time <= 2; ++time) {
        wrong += cublasDgemm_v2(handle, 0, 1, N, N, N, &two, a, LD, b, LD, &one, c, LD) != 0;
        for (int j = 0; j < N; ++j)
            for (int i = 0; i < LD; ++i) {
                double sum = 0;
                for (int l = 0; l < N; ++l)
                    sum += a[i + l * LD] * b[j + l * LD];
                wrong += c[i + j * LD] != (i + j * LD) % 3 + (i < N ? 2 * time * sum : 0);
            }
    }
    *(long *)result = wrong;
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    long wrong[4];
    multiply(&wrong[0]);
    for (int i = 0; i < 4; ++i)
        pthread_create(&threads[i], NULL, multiply, &wrong[i]);
    for (int i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    printf("%d %ld\n", fake_products, wrong[0] + wrong[1] + wrong[2] + wrong[3]);
    return 0;
}
