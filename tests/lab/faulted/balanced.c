/* Main touches all pages of `used` first. Then a thread on CPU 0 writes the first half again and again, and one on CPU 1
 * reads the second half, until the kernel has made these pages fault some times for its NUMA balancing. Prints a line. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PAGE = 4096, PAGES = 512, SECONDS = 12 };
static uint64_t used[PAGES * PAGE / 8] __attribute__((aligned(4096)));

static void on_cpu(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) abort();
}

static int is_over(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    static time_t began;
    if (!began) began = now.tv_sec;
    return now.tv_sec - began >= SECONDS;
}

static void *writer(void *unused) {
    on_cpu(0);
    while (!is_over())
        for (size_t page = 0; page < PAGES / 2; page++) ((volatile uint64_t *)used)[page * PAGE / 8] = page;
    return unused;
}

static void *reader(void *unused) {
    on_cpu(1);
    while (!is_over())
        for (size_t page = PAGES / 2; page < PAGES; page++) (void)((volatile uint64_t *)used)[page * PAGE / 8];
    return unused;
}

int main(void) {
    pthread_t threads[2];
    for (size_t page = 0; page < PAGES; page++) used[page * PAGE / 8] = page;
    is_over();
    pthread_create(&threads[0], NULL, writer, NULL);
    pthread_create(&threads[1], NULL, reader, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
