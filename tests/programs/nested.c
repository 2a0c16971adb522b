/* nested STEPS: an OpenMP team of two, each of which opens a region of four in every step; main is worker 0 of both. A
 * thread of pthreads that main creates between regions waits for the end.
 *
 * Truth:
 *   table   block: worker w of 8 has the w-th eighth; w is 4 * outer thread + inner thread
 *   workers eight; the waiter does not work
 *
 * stdout: the sum, then a line for each thread with the nodes that it could use in the last step.
 */
#define _GNU_SOURCE
#include "affinity.h"
#include <omp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { OUTER = 2, INNER = 4, WORKERS = OUTER * INNER, CELLS = 4 << 20 };

static uint64_t table[CELLS];
static uint64_t sums[WORKERS];
static char nodes[WORKERS][64], waiter_nodes[64];
static pthread_mutex_t end = PTHREAD_MUTEX_INITIALIZER;

static void *waiter(void *unused) {
    write_nodes(waiter_nodes, sizeof waiter_nodes);
    pthread_mutex_lock(&end);
    pthread_mutex_unlock(&end);
    return unused;
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 20;
    pthread_t other;
    pthread_mutex_lock(&end);
    omp_set_max_active_levels(2);
    for (size_t i = 0; i < CELLS; i++) table[i] = i;
    for (int step = 0; step < steps; step++) {
#pragma omp parallel num_threads(OUTER)
        {
            int outer = omp_get_thread_num();
#pragma omp parallel num_threads(INNER)
            {
                int w = INNER * outer + omp_get_thread_num();
                uint64_t sum = 0;
                write_nodes(nodes[w], sizeof nodes[w]);
                for (int sweep = 0; sweep < 4; sweep++)
                    for (size_t i = (size_t)CELLS / WORKERS * w; i < (size_t)CELLS / WORKERS * (w + 1); i++)
                        sum += table[i] = table[i] * 3 + i;
                sums[w] += sum;
            }
        }
        if (step == 0) pthread_create(&other, NULL, waiter, NULL);
    }
    pthread_mutex_unlock(&end);
    pthread_join(other, NULL);
    uint64_t sum = 0;
    for (int w = 0; w < WORKERS; w++) sum += sums[w];
    printf("sum %llu\nwaiter: %s\n", (unsigned long long)sum, waiter_nodes);
    for (int w = 0; w < WORKERS; w++) printf("worker %d: %s\n", w, nodes[w]);
    return 0;
}
