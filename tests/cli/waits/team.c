/* A team of four that meets ROUNDS times at a barrier of OpenMP. Run it with OMP_WAIT_POLICY=passive: a thread that
 * comes early sleeps. */
#include <stdint.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5000;
    volatile uint64_t work[4] = {0};
#pragma omp parallel num_threads(4)
    for (int i = 0; i < rounds; i++) {
#pragma omp barrier
#pragma omp single nowait
        work[0] += i;
    }
    return work[0] == 0;
}
