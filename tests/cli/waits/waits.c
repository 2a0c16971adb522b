/* Threads that wait, by the first argument, ROUNDS times or so:
 *   lock       one for a lock that main holds until it has slept there for some time
 *   condition  two for each other, in turn
 *   barrier    one at a barrier where main comes when it has slept there for some time
 *   bound      as condition, each on a CPU of its own choice
 *   sleep      four for a time
 *   read       two for bytes in a pipe, in turn
 *   own        none: four threads compute
 *   both       one for a lock as in `lock`, while main sleeps for a time before each round */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int rounds = 20000, bound;
static volatile pid_t waiter;
static pthread_mutex_t gates[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static size_t turn;
static int pipes[2][2];

static void nap(long ns) { nanosleep(&(struct timespec){0, ns}, 0); }

/* So long that each look at the threads finds it there, rather than on its way. */
static void let_it_sleep(void) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < 500000);
}

/* Until the waiter sleeps: /proc/PID/stat says S behind the name in parentheses. */
static void until_it_sleeps(void) {
    char path[64], text[512];
    for (;;) {
        while (!waiter) sched_yield();
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", waiter);
        FILE *file = fopen(path, "r");
        if (!file) exit(3);
        size_t n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[n] = 0;
        char *end = strrchr(text, ')');
        if (end && end[2] == 'S') return;
        sched_yield();
    }
}

static void *locks(void *unused) {
    waiter = gettid();
    for (int i = 0; i < rounds; i++) {
        pthread_mutex_lock(&gates[i % 2]);
        pthread_mutex_unlock(&gates[i % 2]);
    }
    return unused;
}

static void *waits(void *unused) {
    waiter = gettid();
    for (int i = 0; i < rounds; i++) pthread_barrier_wait(&barrier);
    return unused;
}

static void *takes_turns(void *argument) {
    size_t me = (size_t)argument;
    if (bound) {
        cpu_set_t may, own;
        CPU_ZERO(&own);
        sched_getaffinity(0, sizeof may, &may);
        for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&own); cpu++)
            if (CPU_ISSET(cpu, &may)) CPU_SET(cpu, &own);
        sched_setaffinity(0, sizeof own, &own);
    }
    for (int i = 0; i < rounds; i++) {
        pthread_mutex_lock(&gates[0]);
        while (turn != me) pthread_cond_wait(&changed, &gates[0]);
        turn = !me;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&gates[0]);
    }
    return 0;
}

static void *reads(void *argument) {
    size_t me = (size_t)argument;
    char byte = 0;
    for (int i = 0; i < rounds; i++) {
        if (me && read(pipes[1][0], &byte, 1) != 1) exit(3);
        if (write(pipes[!me][1], &byte, 1) != 1) exit(3);
        if (!me && read(pipes[0][0], &byte, 1) != 1) exit(3);
    }
    return 0;
}

static void *sleeps(void *unused) {
    for (int i = 0; i < rounds; i++) nap(1000);
    return unused;
}

/* Main does so, too, in the end: a profile without accesses has no findings. */
static void *computes(void *argument) {
    volatile uint64_t *own = calloc(1 << 16, 8);
    if (!own) exit(3);
    for (int s = 0; s < 2000; s++)
        for (int i = 0; i < 1 << 16; i++) own[i] += i;
    return argument;
}

static void lets_through(int naps) {
    for (int i = 0; i < rounds; i++) {
        if (naps) nap(2000000);
        until_it_sleeps();
        let_it_sleep();
        if (i) pthread_mutex_lock(&gates[(i - 1) % 2]);
        pthread_mutex_unlock(&gates[i % 2]);
    }
}

static void comes_to_the_barrier(void) {
    for (int i = 0; i < rounds; i++) {
        until_it_sleeps();
        let_it_sleep();
        pthread_barrier_wait(&barrier);
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "lock";
    if (argc > 2) rounds = atoi(argv[2]);
    int of = 1, both = !strcmp(mode, "both");
    void *(*run)(void *) = locks;
    bound = !strcmp(mode, "bound");
    if (bound || !strcmp(mode, "condition")) of = 2, run = takes_turns;
    if (!strcmp(mode, "read")) of = 2, run = reads;
    if (!strcmp(mode, "sleep")) of = 4, run = sleeps;
    if (!strcmp(mode, "own")) of = 4, run = computes;
    if (!strcmp(mode, "barrier")) run = waits;
    if (pipe(pipes[0]) || pipe(pipes[1])) return 3;
    pthread_barrier_init(&barrier, 0, 2);
    if (run == locks) pthread_mutex_lock(&gates[0]), pthread_mutex_lock(&gates[1]);
    pthread_t threads[4];
    for (size_t i = 0; i < (size_t)of; i++) pthread_create(&threads[i], 0, run, (void *)i);
    if (run == locks) lets_through(both);
    if (run == waits) comes_to_the_barrier();
    computes(0);
    for (int i = 0; i < of; i++) pthread_join(threads[i], 0);
    return 0;
}
