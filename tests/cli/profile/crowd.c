/* crowd THREADS BLOCKS: so many threads that run at the same time, and so many blocks that are allocated at the same
 * time, all of them used until the end. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double cells[1 << 16];
static pthread_barrier_t all_there;

static void *wait_for_all(void *unused) {
    pthread_barrier_wait(&all_there);
    return unused;
}

static long **keep(long count) {
    long **blocks = malloc(count * sizeof *blocks);
    for (long i = 0; i < count; i++) {
        blocks[i] = malloc(64 + i % 64);
        *blocks[i] = i;
    }
    return blocks;
}

int main(int argc, char **argv) {
    long threads = atol(argv[1]), count = atol(argv[2]), sum = 0;
    pthread_t *ids = malloc(threads * sizeof *ids);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 32 << 10);
    pthread_barrier_init(&all_there, NULL, threads + 1);
    long **blocks = keep(count);
    for (long i = 0; i < threads; i++)
        if (pthread_create(&ids[i], &small, wait_for_all, NULL)) return 1;
    pthread_barrier_wait(&all_there);
    for (long i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    for (clock_t end = clock() + CLOCKS_PER_SEC / 2; clock() < end;)
        for (int i = 0; i < 1 << 16; i++) cells[i] += 1;
    for (long i = 0; i < count; i++) {
        sum += *blocks[i];
        free(blocks[i]);
    }
    printf("%ld %ld\n", threads, sum);
}
