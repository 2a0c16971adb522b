/* Two threads sweep their halves of one array and allocate, use and free another one in each step, for SECONDS.
 *
 * steps SECONDS      stdout: done
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 1 << 20, OWN = 1 << 15 };
static double *whole;
static double seconds;
static volatile double sink;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *work(void *half) {
    for (double start = now(); now() - start < seconds;) {
        double *own = malloc(OWN * sizeof *own);
        memset(own, 0, OWN * sizeof *own);
        for (long i = (long)half * N / 2; i < ((long)half + 1) * N / 2; i++) whole[i] += own[i % OWN] += i;
        sink = own[7];
        free(own);
    }
    return NULL;
}

int main(int argc, char **argv) {
    seconds = argc > 1 ? atof(argv[1]) : 1;
    whole = calloc(N, sizeof *whole);
    pthread_t other;
    pthread_create(&other, NULL, work, (void *)1);
    work((void *)0);
    pthread_join(other, NULL);
    puts("done");
    return 0;
}
