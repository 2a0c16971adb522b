/* pinned COUNT [CPU...]: COUNT threads, the main thread included, which pin themselves to the CPUs that are given.
 *
 * stdout: a line for each thread with its CPUs, in creation order, then for the global `grid` and the heap object
 * `by_malloc` (allocated while all threads are alive) the node of each of 4 slices.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIZE = 4 << 20, PAGE = 4096, MOST = 64 };

__attribute__((aligned(4096))) char grid[SIZE];
static pthread_barrier_t ready, done;
static int cpu[MOST], cpus;
static cpu_set_t on[MOST];

__attribute__((noinline, noclone)) static char *by_malloc(size_t n) { char *p = malloc(n); __asm__ volatile(""); return p; }

static void *pinned(void *number) {
    long t = (long)number;
    if (t < cpus) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu[t], &set);
        if (sched_setaffinity(0, sizeof set, &set)) perror("sched_setaffinity");
    }
    sched_getaffinity(0, sizeof on[t], &on[t]);
    if (t == 0) return NULL;
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&done);
    return NULL;
}

static void show(const char *name, char *p) {
    memset(p, 1, SIZE);
    printf("%s", name);
    for (int slice = 0; slice < 4; slice++) {
        int first = -1, node = -1, mixed = 0;
        for (size_t i = 0; i < SIZE / 4; i += PAGE) {
            void *page = p + slice * (SIZE / 4) + i;
            syscall(SYS_move_pages, 0, 1L, &page, NULL, &node, 0);
            if (i == 0) first = node;
            mixed |= node != first;
        }
        if (mixed) printf(" mixed");
        else printf(" %d", first);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1;
    for (int i = 2; i < argc && cpus < MOST; i++) cpu[cpus++] = atoi(argv[i]);
    pthread_barrier_init(&ready, NULL, count);
    pthread_barrier_init(&done, NULL, count);
    pthread_t thread[MOST];
    for (long t = 1; t < count; t++) pthread_create(&thread[t], NULL, pinned, (void *)t);
    pinned((void *)0);
    pthread_barrier_wait(&ready);
    char *heap = by_malloc(SIZE);
    for (int t = 0; t < count; t++) {
        printf("thread %d:", t);
        for (int c = 0; c < CPU_SETSIZE; c++)
            if (CPU_ISSET(c, &on[t])) printf(" %d", c);
        printf("\n");
    }
    show("grid", grid);
    show("by_malloc", heap);
    fflush(stdout);
    pthread_barrier_wait(&done);
    for (long t = 1; t < count; t++) pthread_join(thread[t], NULL);
    return 0;
}
