/* Gather: out[i] = a[i]*2 + table[idx[i]], rows split over the threads.
 *
 * Truth: out, a, idx (globals, 16, 16 and 8 MiB): block; table (global, 64 MiB): read-shared.
 * Most of the cost is on table. The main thread initialises everything.
 *
 * gather [iterations]   threads: OMP_NUM_THREADS
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 21, TABLE = 1 << 23 };
double out[N], a[N], table[TABLE];
int32_t idx[N];

int main(int argc, char **argv) {
    int iterations = argc > 1 ? atoi(argv[1]) : 180;
    if (iterations < 1) return 2;
    uint32_t seed = 12345;
    for (long i = 0; i < TABLE; i++) table[i] = (double)(i % 1013);
    for (long i = 0; i < N; i++) {
        seed = seed * 1664525u + 1013904223u;
        idx[i] = (int32_t)(seed >> 9) % TABLE;
        a[i] = (double)(i % 17);
        out[i] = 0;
    }
    for (int it = 0; it < iterations; it++) {
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++) out[i] = a[i] * 2 + table[idx[i]];
#pragma omp parallel for schedule(static)
        for (long i = 0; i < N; i++) a[i] = out[i] * 0.25;
    }
    double sum = 0;
    for (long i = 0; i < N; i++) sum += out[i];
    printf("iterations %d  sum %.17g\n", iterations, sum);
    return 0;
}
