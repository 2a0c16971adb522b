/* The classic first-touch bug: the main thread initialises everything, then all threads compute.
 *
 * Truth: x, y, z (three call sites in main, 16 MiB each): block; first touched by thread 0 alone.
 *
 * With -DPARALLEL_INIT each thread touches first what it computes on: the same program without the bug.
 *
 * firsttouch [iterations]   threads: OMP_NUM_THREADS
 */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int iterations = argc > 1 ? atoi(argv[1]) : 1500;
    if (iterations < 1) return 2;
    const long n = 2 << 20;
    double *x = malloc(n * sizeof *x);
    double *y = malloc(n * sizeof *y);
    double *z = malloc(n * sizeof *z);
    if (!x || !y || !z) return 1;
#ifdef PARALLEL_INIT
#pragma omp parallel for schedule(static)
#endif
    for (long i = 0; i < n; i++) x[i] = 0, y[i] = i % 23, z[i] = i % 29;
    for (int it = 0; it < iterations; it++) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++) x[i] = 0.5 * x[i] + y[i] + 3.0 * z[i];
    }
    double sum = 0;
    for (long i = 0; i < n; i++) sum += x[i];
    printf("iterations %d  sum %.17g\n", iterations, sum);
    free(x), free(y), free(z);
    return 0;
}
