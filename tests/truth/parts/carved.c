/* One block carved into arrays that are used differently; built without debug information.
 * Truth, in order: `field`, sliced over the threads (block), 2 MiB; `table`, filled by main, then read at random by
 * all (read-shared), 3 MiB; `planes`, sliced again in each 128 KiB (block-cyclic), 2.5 MiB.
 * carved ROUNDS */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024L * 1024)
#define FIELD (2 * MIB / 8)
#define TABLE (3 * MIB / 8)
#define PLANE (128L * 1024 / 8)
#define PLANES 20

/* Every value of the slice of each thread. */
static __attribute__((noinline)) double sweep(double *field) {
    double sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (long i = 0; i < FIELD; i++) {
        field[i] = field[i] * 0.999 + 1;
        sum += field[i];
    }
    return sum;
}

/* Entries at random. */
static __attribute__((noinline)) double look_up(const double *table) {
    double sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
        uint64_t at = 88172645463325252ull + (uint64_t)omp_get_thread_num();
        long own = TABLE / 2 / omp_get_num_threads();
        for (long i = 0; i < own; i++) {
            at ^= at << 13, at ^= at >> 7, at ^= at << 17;
            sum += table[at % TABLE];
        }
    }
    return sum;
}

/* Rows of each plane. */
static __attribute__((noinline)) double relax(double *planes) {
    double sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
        long threads = omp_get_num_threads(), own = omp_get_thread_num();
        long first = PLANE * own / threads, end = PLANE * (own + 1) / threads;
        for (long k = 0; k < PLANES; k++)
            for (long i = first; i < end; i++) {
                planes[k * PLANE + i] = planes[k * PLANE + i] * 0.5 + 2;
                sum += planes[k * PLANE + i];
            }
    }
    return sum;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    char *pool = malloc((FIELD + TABLE + PLANE * PLANES) * 8);
    double *field = (double *)pool, *table = field + FIELD, *planes = table + TABLE;
    memset(pool, 0, (FIELD + TABLE + PLANE * PLANES) * 8);
    for (long i = 0; i < TABLE; i++)
        table[i] = (double)(i % 1000);
    double sum = 0;
    for (long r = 0; r < rounds; r++)
        sum += sweep(field) + look_up(table) + relax(planes);
    printf("sum %.6e\n", sum);
    free(pool);
    return 0;
}
