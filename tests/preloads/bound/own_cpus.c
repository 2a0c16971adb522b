// own_cpus: a program that chooses the CPUs of its threads by itself: main before it creates each worker, and each
// worker before it creates a helper, which inherits them.
//
// own_cpus moved: main has created a thread, and may be bound with it, before it chooses a CPU.
//
// stdout: the CPUs of each thread.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static void show(const char *who) {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    printf("%s:", who);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) printf(" %d", cpu);
    puts("");
}

static void choose(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void *help(void *unused) {
    show("helper");
    return unused;
}

static void *work(void *number) {
    pthread_t helper;
    show("worker");
    choose((long)number);
    show("worker on its own CPU");
    pthread_create(&helper, NULL, help, NULL);
    pthread_join(helper, NULL);
    return NULL;
}

static void *rest(void *unused) { return unused; }

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "moved") == 0) {
        pthread_t first, worker;
        pthread_create(&first, NULL, rest, NULL);
        pthread_join(first, NULL);
        choose(0);
        pthread_create(&worker, NULL, work, (void *)0);
        pthread_join(worker, NULL);
        return 0;
    }
    for (long i = 0; i < 2; i++) {
        pthread_t worker;
        choose(1 - (int)i);
        pthread_create(&worker, NULL, work, (void *)i);
        pthread_join(worker, NULL);
        show("main");
    }
    // A thread that is given its CPUs by attributes.
    pthread_t worker;
    pthread_attr_t attributes;
    cpu_set_t one, all;
    CPU_ZERO(&one);
    CPU_ZERO(&all);
    CPU_SET(1, &one);
    CPU_SET(0, &all);
    CPU_SET(1, &all);
    sched_setaffinity(0, sizeof all, &all);
    pthread_attr_init(&attributes);
    pthread_attr_setaffinity_np(&attributes, sizeof one, &one);
    pthread_create(&worker, &attributes, work, (void *)1);
    pthread_join(worker, NULL);
    return 0;
}
