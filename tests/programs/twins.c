/* Two matrices of one call site: both are allocated by the same line of a loop.
 *
 * Truth: the first (24 MiB) is swept by rows, each thread its own slice: block; the second (24 MiB) is read at random by
 * all threads while they write the first: read-shared. As one object of one call site they would be neither.
 *
 * twins [iterations]   threads: OMP_NUM_THREADS
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 3 << 20, TWINS = 2 };

static __attribute__((noinline)) uint64_t *make_matrix(size_t words) {
    uint64_t *matrix = malloc(words * sizeof *matrix);
    if (!matrix) exit(1);
    return matrix;
}

int main(int argc, char **argv) {
    int iterations = argc > 1 ? atoi(argv[1]) : 60;
    if (iterations < 1) return 2;
    uint64_t *m[TWINS];
    volatile int twins = TWINS; /* so that the compiler does not write the call twice */
    for (int i = 0; i < twins; i++) m[i] = make_matrix(WORDS);
    for (size_t i = 0; i < WORDS; i++) {
        m[0][i] = i;
        m[1][i] = i * 0x9E3779B97F4A7C15u;
    }
    for (int it = 0; it < iterations; it++) {
#pragma omp parallel for schedule(static)
        for (size_t i = 0; i < WORDS; i++) {
            uint64_t x = (i + 1) * 0xD1342543DE82EF95u + (uint64_t)it;
            m[0][i] += m[1][(x ^ x >> 29) % WORDS];
        }
#pragma omp parallel for schedule(static)
        for (size_t i = 0; i < WORDS; i++) m[0][i] = m[0][i] * 3 + (m[0][i] >> 7);
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < WORDS; i++) sum = sum * 31 + m[0][i];
    printf("iterations %d  checksum %016llx\n", iterations, (unsigned long long)sum);
    return 0;
}
