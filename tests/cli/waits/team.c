/* A team of two, or THREADS, that meets ROUNDS times at a barrier of OpenMP, and then computes. Run it with OMP_WAIT_POLICY=passive: a
 * thread that comes early sleeps. */
#include <stdint.h>
#include <stdlib.h>

enum { WORDS = 1 << 16 };

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5000;
    int threads = argc > 2 ? atoi(argv[2]) : 2;
    volatile uint64_t met = 0;
#pragma omp parallel num_threads(threads)
    {
        for (int i = 0; i < rounds; i++) {
#pragma omp barrier
#pragma omp single nowait
            met += i;
        }
        volatile uint64_t *own = calloc(WORDS, 8);
        if (!own) exit(3);
        for (int s = 0; s < 1000; s++)
            for (int i = 0; i < WORDS; i++) own[i] += i;
    }
    return met == 0;
}
