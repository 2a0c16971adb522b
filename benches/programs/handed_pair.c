/* Small blocks that other threads free: handed_pair [threads] [pairs] [rounds], to be run under the apply preload with a
 * rule for `matched`. Each thread puts new blocks of 16 to 515 bytes into 10,000 shared slots, and frees what was there.
 * Prints for each round the CPU nanoseconds of a malloc and free, of all threads together: with blocks that are placed,
 * and with blocks that are not.
 * cc -O2 -pthread -o handed_pair handed_pair.c */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SLOTS = 10000, MOST_THREADS = 256 };
static _Atomic(char *) slots[SLOTS];
static void *(*make)(size_t);
static long pairs_each;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

__attribute__((noinline, noclone)) static void *matched(size_t n) {
    void *p = malloc(n);
    __asm__ volatile("" ::: "memory");
    return p;
}

__attribute__((noinline, noclone)) static void *unmatched(size_t n) {
    void *p = malloc(n);
    __asm__ volatile("nop" ::: "memory");
    return p;
}

static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void *work(void *number) {
    uint64_t state = (uintptr_t)number + 1;
    for (long i = 0; i < pairs_each; i++) {
        size_t size = 16 + next(&state) % 500;
        char *block = make(size);
        block[0] = block[size - 1] = 1;
        free(atomic_exchange(&slots[next(&state) % SLOTS], block));
    }
    return NULL;
}

static double pair(void *(*how)(size_t), long threads, long pairs) {
    pthread_t team[MOST_THREADS];
    double start = now();
    make = how;
    pairs_each = pairs / threads;
    for (long t = 0; t < threads; t++)
        if (pthread_create(&team[t], NULL, work, (void *)t)) exit(4);
    for (long t = 0; t < threads; t++) pthread_join(team[t], NULL);
    for (long i = 0; i < SLOTS; i++) free(atomic_exchange(&slots[i], NULL));
    return (now() - start) / (pairs_each * threads);
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 8;
    long pairs = argc > 2 ? atol(argv[2]) : 1000000, rounds = argc > 3 ? atol(argv[3]) : 15;
    if (threads < 1 || threads > MOST_THREADS) return 2;
    for (long round = 0; round < rounds; round++)
        printf("%.1f %.1f\n", pair(matched, threads, pairs), pair(unmatched, threads, pairs));
    return 0;
}
