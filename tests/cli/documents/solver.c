/* The program of the documents, there called app, lu and solver: its main thread fills a global and a heap array, then
 * two threads sweep their halves of both.
 *
 * solver [STEPS]        four sweeps a step
 */
#include <numamma.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORKERS = 2, CELLS = 3 << 20, STATS = 1 << 20 }; /* 24 MiB and 8 MiB of double */

static double grid[CELLS];
static double *stats;
static int steps = 50;

__attribute__((noinline)) static double *stats_alloc(void) { return malloc(STATS * sizeof(double)); }

static void *worker(void *arg) {
    long w = (long)arg;
    for (int sweep = 0; sweep < 4 * steps; sweep++) {
        for (long i = w * CELLS / WORKERS; i < (w + 1) * CELLS / WORKERS; i++) grid[i] = grid[i] * 0.5 + sweep;
        for (long i = w * STATS / WORKERS; i < (w + 1) * STATS / WORKERS; i++) stats[i] = stats[i] * 0.5 + 1;
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) steps = atoi(argv[1]);
    stats = stats_alloc();
    for (long i = 0; i < CELLS; i++) grid[i] = i;
    for (long i = 0; i < STATS; i++) stats[i] = i;
    numamma_profile(1);
    numamma_phase("solve");
    pthread_t threads[WORKERS];
    for (long w = 0; w < WORKERS; w++) pthread_create(&threads[w], NULL, worker, (void *)w);
    for (long w = 0; w < WORKERS; w++) pthread_join(threads[w], NULL);
    numamma_profile(0);
    printf("steps %d  cell %g  stats %g\n", steps, grid[CELLS / 3], stats[STATS / 3]);
    free(stats);
    return 0;
}
