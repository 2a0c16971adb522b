/* Patches of a grid: the main thread allocates 96 in a row, of which each of 4 threads works on every fourth. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 4, PATCHES = 96, WORDS = 1 << 16 };

static long *patches[PATCHES];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *work(void *number) {
    long sum = 0;
    double end = now() + 1.0;
    while (now() < end)
        for (size_t p = (size_t)number; p < PATCHES; p += THREADS)
            for (unsigned i = 0; i < WORDS; i += 8) sum += patches[p][i] = patches[p][i * 2654435761u % WORDS] + 1;
    return (void *)sum;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int p = 0; p < PATCHES; p++) memset(patches[p] = malloc(WORDS * sizeof(long)), 1, WORDS * sizeof(long));
    for (size_t t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, work, (void *)t);
    for (size_t t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    puts("ok");
    return 0;
}
