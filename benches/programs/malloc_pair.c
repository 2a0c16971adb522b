/* Cost of a malloc and free pair: malloc_pair [pairs] [depth] [threads] [stacks] prints
   "threads depth pairs ns_per_pair" per thread. Depth 1 is a call from one frame, 20 from a recursion of
   twenty frames. With one stack the recursion is entered once and stays, so that only the pairs are timed;
   with more, each pair is made at the end of a recursion of its own, along one of that many paths.
   Pairs come in bursts with a pause between them that is not timed: a recorder that empties its buffers
   every millisecond keeps up.
   cc -O2 -o malloc_pair malloc_pair.c -lpthread */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BURST = 4000, PAUSE_NS = 2000000 };

static long pairs = 400000;
static int depth = 1, threads = 1;
static unsigned stacks = 1;
static pthread_barrier_t barrier;

/* CPU time of the thread: being preempted by other work on the machine does not count. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static void pause_between(void) {
    struct timespec t = {0, PAUSE_NS};
    nanosleep(&t, 0);
}

#define PAIR() do { void *volatile p = malloc(64); free(p); } while (0)
#define STAY() __asm__ volatile("" ::: "memory") /* no tail call: every frame stays; no merging of call sites */

__attribute__((noinline)) static void along(int left, unsigned path) {
    if (left > 1) {
        if (path & 1) { along(left - 1, path >> 1); STAY(); }
        else { along(left - 1, path >> 1); __asm__ volatile("nop" ::: "memory"); }
        return;
    }
    switch (path & 3) {
    case 0: PAIR(); STAY(); break;
    case 1: PAIR(); __asm__ volatile("nop" ::: "memory"); break;
    case 2: PAIR(); __asm__ volatile("nop; nop" ::: "memory"); break;
    default: PAIR(); __asm__ volatile("nop; nop; nop" ::: "memory"); break;
    }
}

__attribute__((noinline)) static void burst(long count, unsigned *next) {
    for (long i = 0; i < count; i++) {
        /* Knuth's multiplicative hash: neighbours differ in all bits of the path. */
        unsigned path = (*next)++ % stacks * 2654435761u;
        along(depth, path >> 7);
        STAY();
    }
}

__attribute__((noinline)) static double varied(void) {
    unsigned next = 0;
    burst(stacks < 1000 ? 1000 : stacks, &next);
    pthread_barrier_wait(&barrier);
    double sum = 0;
    for (long done = 0; done < pairs; done += BURST) {
        pause_between();
        double start = now();
        burst(BURST, &next);
        sum += now() - start;
    }
    return sum;
}

__attribute__((noinline)) static double repeated(int left) {
    if (left > 1) {
        double result = repeated(left - 1);
        STAY();
        return result;
    }
    for (long i = 0; i < 1000; i++) PAIR();
    pthread_barrier_wait(&barrier);
    double sum = 0;
    for (long done = 0; done < pairs; done += BURST) {
        pause_between();
        double start = now();
        for (long i = 0; i < BURST; i++) PAIR();
        sum += now() - start;
    }
    return sum;
}

static void *run(void *arg) {
    *(double *)arg = (stacks > 1 ? varied() : repeated(depth)) / pairs;
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1) pairs = atol(argv[1]);
    if (argc > 2) depth = atoi(argv[2]);
    if (argc > 3) threads = atoi(argv[3]);
    if (argc > 4) stacks = atoi(argv[4]);
    if (pairs < BURST || depth < 1 || threads < 1 || threads > 64 || stacks < 1) {
        fprintf(stderr, "usage: malloc_pair [pairs, at least %d] [depth] [threads 1..64] [stacks]\n", BURST);
        return 2;
    }
    pairs -= pairs % BURST;
    pthread_t t[64];
    double ns[64];
    pthread_barrier_init(&barrier, 0, threads);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&t[i], 0, run, &ns[i])) return 1;
    for (int i = 0; i < threads; i++) {
        pthread_join(t[i], 0);
        printf("%d %d %ld %.2f\n", threads, depth, pairs, ns[i]);
    }
    return 0;
}
