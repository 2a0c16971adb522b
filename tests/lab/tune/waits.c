/* A program whose time depends on where its pages are, also on an emulator where all memory is as fast: before each
 * sweep a thread sleeps for as long as its share of pages on other nodes says, as the kernel shows them (move_pages).
 * One thread on each node; main touches the array first, and every thread then works on its own quarter of it.
 * waits [steps]: prints a checksum that does not depend on the placement. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, PAGES = 512, PAGE = 4096, WORDS = PAGE / 8, NANOSECONDS_IF_ALL_REMOTE = 30000000 };

static long quarters[THREADS][PAGES][WORDS] __attribute__((aligned(PAGE)));
static long sums[THREADS];
static int steps = 20;
static pthread_barrier_t barrier;

static void wait_for_remote_pages(long (*mine)[WORDS]) {
    static __thread void *pages[PAGES];
    static __thread int nodes[PAGES];
    unsigned cpu, here;
    for (int p = 0; p < PAGES; p++) pages[p] = mine[p];
    if (syscall(SYS_move_pages, 0, (long)PAGES, pages, NULL, nodes, 0) != 0 || getcpu(&cpu, &here) != 0) abort();
    long remote = 0;
    for (int p = 0; p < PAGES; p++) remote += nodes[p] != (int)here;
    struct timespec pause = {0, remote * (NANOSECONDS_IF_ALL_REMOTE / PAGES)};
    nanosleep(&pause, NULL);
}

static void *work(void *number) {
    long t = (long)number;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(t, &own);
    sched_setaffinity(0, sizeof own, &own);
    for (int s = 0; s < steps; s++) {
        pthread_barrier_wait(&barrier);
        wait_for_remote_pages(quarters[t]);
        for (int r = 0; r < 4; r++)
            for (int p = 0; p < PAGES; p++)
                for (int w = 0; w < WORDS; w += 8) sums[t] += quarters[t][p][w]++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t team[THREADS];
    if (argc > 1) steps = atoi(argv[1]);
    for (int t = 0; t < THREADS; t++)
        for (int p = 0; p < PAGES; p++)
            for (int w = 0; w < WORDS; w++) quarters[t][p][w] = t + w;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long t = 0; t < THREADS; t++) pthread_create(&team[t], NULL, work, (void *)t);
    long sum = 0;
    for (int t = 0; t < THREADS; t++) pthread_join(team[t], NULL), sum += sums[t];
    printf("sum %ld\n", sum);
    return 0;
}
