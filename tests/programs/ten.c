/* Twelve arrays of one size that leave the caches unequally often: array k is walked through in k of 12 steps of each
 * iteration; and a small table that has more accesses than all of them and never leaves the caches.
 *
 * Truth: array_1 ... array_12 (globals, 512 KiB each): block; lines fetched of array_k in proportion to k.
 *        `table` (global, 4 KiB): read by all, the most accessed and the least waited for.
 * The main thread initialises all.
 *
 * ten [iterations]   threads: OMP_NUM_THREADS; says `object NAME ADDRESS BYTES` on stderr
 */
#include <stdio.h>
#include <stdlib.h>

enum { ARRAYS = 12, N = 65536 };
#define ARRAY(k) double array_##k[N];
ARRAY(1) ARRAY(2) ARRAY(3) ARRAY(4) ARRAY(5) ARRAY(6) ARRAY(7) ARRAY(8) ARRAY(9) ARRAY(10) ARRAY(11) ARRAY(12)
double table[512];

static double *const arrays[ARRAYS] = { array_1, array_2, array_3, array_4, array_5, array_6,
                                        array_7, array_8, array_9, array_10, array_11, array_12 };

__attribute__((noinline)) static void step(int s) {
#pragma omp parallel
    for (int k = s; k < ARRAYS; k++) {
        double *a = arrays[k];
#pragma omp for schedule(static)
        for (int i = 0; i < N; i += 8) {
            int at = i / 8 & 511;
            a[i] = a[i] * 0.5 + table[at] + table[at ^ 1] + table[at ^ 2] + table[at ^ 3];
        }
    }
}

int main(int argc, char **argv) {
    int iterations = argc > 1 ? atoi(argv[1]) : 400;
    if (iterations < 1) return 2;
    for (int i = 0; i < 512; i++) table[i] = i % 5;
    for (int k = 0; k < ARRAYS; k++) {
        for (int i = 0; i < N; i++) arrays[k][i] = (i + k) % 9;
        fprintf(stderr, "object array_%d %zu %zu\n", k + 1, (size_t)arrays[k], N * sizeof(double));
    }
    fprintf(stderr, "object table %zu %zu\n", (size_t)table, sizeof table);
    for (int it = 0; it < iterations; it++)
        for (int s = 0; s < ARRAYS; s++) step(s);
    double sum = 0;
    for (int k = 0; k < ARRAYS; k++)
        for (int i = 0; i < N; i += 8) sum += arrays[k][i];
    printf("iterations %d  sum %.17g\n", iterations, sum);
    return 0;
}
