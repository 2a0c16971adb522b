/* Triangular loop: row i has i + 1 elements, rows are split over the threads so that each has the same number of rows.
 *
 * Truth: `lower` (global, 8 MiB): block, T slices of N / T rows; only the elements up to the diagonal are used, so the
 *        last thread has 2T - 1 times the accesses of the first.
 *        `x` (global, 8 KiB): read by all, stays in the caches.
 * The main thread initialises both.
 *
 * triangle [iterations]   threads: OMP_NUM_THREADS; says `object NAME ADDRESS BYTES` on stderr
 */
#include <stdio.h>
#include <stdlib.h>

enum { N = 1024 };
double lower[N][N], x[N], y[N];

__attribute__((noinline)) static void multiply(void) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int j = 0; j <= i; j++) sum += lower[i][j] * x[j];
        y[i] = sum;
    }
}

int main(int argc, char **argv) {
    int iterations = argc > 1 ? atoi(argv[1]) : 800;
    if (iterations < 1) return 2;
    for (int i = 0; i < N; i++) {
        x[i] = 1.0 / (i + 1);
        for (int j = 0; j < N; j++) lower[i][j] = (i * 7 + j) % 13;
    }
    fprintf(stderr, "object lower %zu %zu\nobject x %zu %zu\n", (size_t)lower, sizeof lower, (size_t)x, sizeof x);
    for (int it = 0; it < iterations; it++) {
        multiply();
        x[it % N] = y[it % N] * 1e-6;
    }
    double sum = 0;
    for (int i = 0; i < N; i++) sum += y[i];
    printf("iterations %d  sum %.17g\n", iterations, sum);
    return 0;
}
