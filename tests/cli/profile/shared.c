/* Known truth: three named threads; `left` is worked on by the first, `right` by the second, a heap block of `buffer_for`
 * by the third. Main touches all of `left` first; `right` is touched first by its worker. The block has 1000 pages.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)
#define N (2 * MIB / sizeof(double))

double left[N], right[N];

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline)) static double *buffer_for(size_t bytes) {
    double *block = malloc(bytes);
    __asm__ volatile("" ::: "memory"); /* no tail call: the frame must be on the stack */
    return block;
}

__attribute__((noinline)) static void sweep(volatile double *a, size_t n, double seconds) {
    for (double end = cpu() + seconds; cpu() < end;)
        for (size_t i = 0; i < n; i++) a[i] += 1;
}

struct task {
    const char *name;
    double *data;
    double seconds;
};

static void *worker(void *arg) {
    struct task *t = arg;
    pthread_setname_np(pthread_self(), t->name);
    size_t n = N;
    if (!t->data) {
        n = 4096000 / sizeof(double);
        t->data = buffer_for(4096000);
    }
    sweep(t->data, n, t->seconds);
    return NULL;
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 0.5;
    pthread_t t[3];
    struct task tasks[3] = {{"on-left", left, seconds}, {"on-right", right, seconds}, {"on-heap", NULL, seconds}};
    memset(left, 1, sizeof left);
    for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, worker, &tasks[i]);
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
    return 0;
}
