// deep: a thread that creates a thread that creates a thread.
//
// stdout: the CPUs of each thread, the innermost first.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

static void show(long depth) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    printf("depth %ld:", depth);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) printf(" %d", cpu);
    puts("");
}

static void *descend(void *depth) {
    pthread_t next;
    if ((long)depth < 3) {
        pthread_create(&next, NULL, descend, (void *)((long)depth + 1));
        pthread_join(next, NULL);
    }
    show((long)depth);
    return NULL;
}

int main(void) {
    descend((void *)0);
    return 0;
}
