/* Clustering code: one heap array read at random by all threads, and one sliced array; after PARSEC's
 * streamcluster.
 *
 * Truth: `block`  (alloc_block)   24 MiB, read-shared: every thread reads rows all over it
 *        `points` (alloc_points)   6 MiB, block: each thread works on its own contiguous slice
 * The main thread allocates and initialises both. Threads wait for each other first: one that ended before the last one
 * began would be the same worker.
 *
 * cluster [iterations] [threads]
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIM = 64, ROWS = 98304, POINTS = 196608 };
typedef struct { float x, y, cost; uint32_t seed; uint64_t sum; uint64_t pad; } point_t; /* 32 bytes */
_Static_assert(sizeof(point_t) == 32, "points is 6 MiB");

static float *block;
static point_t *points;
static int iterations = 250, threads = 2;
static pthread_barrier_t begin;

__attribute__((noinline)) static float *alloc_block(void) { return malloc(sizeof(float) * DIM * ROWS); }
__attribute__((noinline)) static point_t *alloc_points(void) { return malloc(sizeof(point_t) * POINTS); }

static void *work(void *arg) {
    long t = (long)arg;
    long lo = (long)POINTS * t / threads, hi = (long)POINTS * (t + 1) / threads;
    pthread_barrier_wait(&begin);
    for (int it = 0; it < iterations; it++)
        for (long i = lo; i < hi; i++) {
            point_t *p = &points[i];
            p->seed = p->seed * 1664525u + 1013904223u;
            const float *row = block + (size_t)(p->seed % ROWS) * DIM;
            float d = 0;
            for (int k = 0; k < DIM; k += 4) d += (row[k] - p->x) * (row[k] - p->y);
            p->cost += d;
            p->sum += (uint64_t)(p->cost) + p->seed;
        }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) iterations = atoi(argv[1]);
    if (argc > 2) threads = atoi(argv[2]);
    if (iterations < 1 || threads < 1 || threads > 1024) return 2;
    block = alloc_block();
    points = alloc_points();
    if (!block || !points) return 1;
    for (size_t i = 0; i < (size_t)DIM * ROWS; i++) block[i] = (float)(i % 1000) * 0.001f;
    for (int i = 0; i < POINTS; i++) points[i] = (point_t){ .x = i % 7, .y = i % 11, .seed = i * 2654435761u };
    pthread_t *id = calloc(threads, sizeof *id);
    pthread_barrier_init(&begin, NULL, threads);
    for (long t = 1; t < threads; t++) pthread_create(&id[t], NULL, work, (void *)t);
    work((void *)0);
    for (long t = 1; t < threads; t++) pthread_join(id[t], NULL);
    uint64_t sum = 0;
    for (int i = 0; i < POINTS; i++) sum = sum * 31 + points[i].sum;
    printf("iterations %d  checksum %016llx\n", iterations, (unsigned long long)sum);
    free(id), free(points), free(block);
    return 0;
}
