/* Programs with known findings, by the first argument:
 *   first     main writes an array, of which four threads then use a quarter each
 *   own       each thread writes its quarter itself
 *   read      main writes a table that four threads then only read, all of it
 *   uneven    four threads with arrays of their own, the last has five times the work
 *   stages    three threads named light with a sixth of the work of the one named heavy each, which they wait for after
 *             each sweep
 *   ending    the same without waiting: the light ones end first
 *   counters  four threads count in the same 64 bytes
 *   apart     the same with 16 KiB for each thread */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, BYTES = 64 << 20, SWEEPS = 24 };
static const char *mode;
static unsigned char *grid;
static volatile uint64_t counters[8];
static struct { volatile uint64_t n; char rest[16384 - 8]; } apart[THREADS];
static pthread_barrier_t begin;

__attribute__((noinline)) static void fill(unsigned char *from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) from[i] = (unsigned char)i;
}

__attribute__((noinline)) static uint64_t sweep(unsigned char *from, size_t bytes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i += 8) sum += ++from[i]; /* the loop that uses it */
    return sum;
}

__attribute__((noinline)) static uint64_t look_up(const unsigned char *table, uint64_t random) {
    uint64_t sum = 0;
    for (int i = 0; i < 3000000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        sum += table[(random >> 33) % BYTES];
    }
    return sum;
}

static void *work(void *argument) {
    size_t me = (size_t)argument, part = BYTES / THREADS;
    static uint64_t sums[THREADS];
    if (!strcmp(mode, "own")) fill(grid + me * part, part);
    pthread_barrier_wait(&begin);
    if (!strcmp(mode, "first") || !strcmp(mode, "own"))
        for (int s = 0; s < SWEEPS * 3; s++) sums[me] += sweep(grid + me * part, part);
    if (!strcmp(mode, "read"))
        for (int s = 0; s < 12; s++) sums[me] += look_up(grid, me + 1);
    int stages = !strcmp(mode, "stages") || !strcmp(mode, "ending");
    if (!strcmp(mode, "uneven") || stages) {
        int heavy = me == THREADS - 1, of = heavy ? stages ? 6 : 5 : 1;
        if (stages) pthread_setname_np(pthread_self(), heavy ? "heavy" : "light");
        unsigned char *own = malloc(part);
        if (!own) exit(3);
        fill(own, part);
        for (int s = 0; s < SWEEPS * of; s++) {
            sums[me] += sweep(own, part);
            if (!strcmp(mode, "stages") && s % of == of - 1) pthread_barrier_wait(&begin);
        }
        free(own);
    }
    if (!strcmp(mode, "counters"))
        for (int i = 0; i < 100000000; i++) counters[me]++;
    if (!strcmp(mode, "apart"))
        for (int i = 0; i < 100000000; i++) apart[me].n++;
    return &sums[me];
}

static void *light(void *argument) { return work(argument); }
static void *heavy(void *argument) { return work(argument); }

int main(int argc, char **argv) {
    mode = argc > 1 ? argv[1] : "first";
    grid = malloc(BYTES);
    if (!grid) return 3;
    if (!strcmp(mode, "first") || !strcmp(mode, "read")) fill(grid, BYTES);
    pthread_t threads[THREADS];
    int stages = !strcmp(mode, "stages") || !strcmp(mode, "ending");
    pthread_barrier_init(&begin, 0, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, stages ? i == THREADS - 1 ? heavy : light : work, (void *)i);
    uint64_t sum = 0;
    for (int i = 0; i < THREADS; i++) {
        void *of;
        pthread_join(threads[i], &of);
        sum += *(uint64_t *)of;
    }
    printf("%lu\n", (unsigned long)sum);
    return 0;
}
