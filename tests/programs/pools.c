/* pools STEPS: a main thread that initialises and then only creates and joins; a helper that wakes up now and then; in
 * every step a new pool of four workers; at the end another pool for a moment.
 *
 * Truth:
 *   grid    block-cyclic, period 4 MiB: worker t of 4 has the t-th MiB of every period
 *   workers the four threads of each pool, with ranks 0 to 3 in every step; main, helper and finishers do not work
 *
 * stdout: the sum, then a line for each thread with the nodes that it could use: main, helper, and the workers of the
 * first and of the last step.
 */
#define _GNU_SOURCE
#include "affinity.h"
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORKERS = 4, SLICE = 1 << 20, PERIODS = 8, SIZE = WORKERS * SLICE * PERIODS, SWEEPS = 6 };

__attribute__((aligned(1 << 21))) static uint64_t grid[SIZE / 8];
static char first[WORKERS][64], last[WORKERS][64], helper_nodes[64], main_nodes[64];
static uint64_t sums[WORKERS];
static volatile int stop, step;
static volatile uint64_t beats;

static void *helper(void *unused) {
    struct timespec nap = { 0, 5000000 };
    write_nodes(helper_nodes, sizeof helper_nodes);
    while (!stop) {
        beats++;
        nanosleep(&nap, NULL);
    }
    return unused;
}

static void *worker(void *number) {
    long t = (long)number;
    uint64_t sum = 0;
    write_nodes(step ? last[t] : first[t], 64);
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int period = 0; period < PERIODS; period++) {
            uint64_t *slice = grid + ((size_t)period * WORKERS + (size_t)t) * (SLICE / 8);
            for (size_t i = 0; i < SLICE / 8; i++) {
                slice[i] = slice[i] * 3 + i;
                sum += slice[i];
            }
        }
    sums[t] += sum;
    return NULL;
}

static void *finisher(void *number) {
    grid[(long)number * SLICE / 8] ^= 1;
    return NULL;
}

static void pool(void *(*routine)(void *)) {
    pthread_t threads[WORKERS];
    for (long t = 0; t < WORKERS; t++) pthread_create(&threads[t], NULL, routine, (void *)t);
    for (int t = 0; t < WORKERS; t++) pthread_join(threads[t], NULL);
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 10;
    pthread_t other;
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < SIZE / 8; i++) grid[i] = grid[i] * 5 + i;
    for (step = 0; step < steps; step++) {
        pool(worker);
        if (step == 0) pthread_create(&other, NULL, helper, NULL);
    }
    pool(finisher);
    stop = 1;
    pthread_join(other, NULL);
    write_nodes(main_nodes, sizeof main_nodes);
    uint64_t sum = 0;
    for (int t = 0; t < WORKERS; t++) sum += sums[t];
    printf("sum %llu\nmain: %s\nhelper: %s\n", (unsigned long long)sum, main_nodes, helper_nodes);
    for (int t = 0; t < WORKERS; t++) printf("first %d: %s\nlast %d: %s\n", t, first[t], t, last[t]);
    return 0;
}
