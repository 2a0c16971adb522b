/* slices SECONDS [late|headless]: four threads, each on its quarter of a global array and of a block, for so long and
 * for at least 0.1 s of CPU time; then prints whether all worked and exits with 7. Prints "ready" when all run. SIGTERM
 * ends the time. `late`: two of them start after a third of it. `headless`: the main thread ends before them, and the
 * process exits with 0. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4
#define PAGES 1024
#define CELLS (PAGES * 512)

double sliced[CELLS];
double *block;
static volatile double seconds;

#define LEAST_CPU 0.1

static double read_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double start;

static void end(int signal) { seconds = 0; }

static void *work(void *arg) {
    long rank = (long)arg, part = CELLS / THREADS;
    double *own = sliced + rank * part, *own_block = block + rank * part;
    while (read_clock(CLOCK_MONOTONIC) < start + seconds || read_clock(CLOCK_THREAD_CPUTIME_ID) < LEAST_CPU)
        for (long i = 0; i < part; i++) own[i] += own_block[i];
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    int late = argc > 2 && !strcmp(argv[2], "late");
    seconds = argc > 1 ? atof(argv[1]) : 1;
    signal(SIGTERM, end);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing behind */
    block = malloc(CELLS * sizeof(double));
    for (long i = 0; i < CELLS; i++) block[i] = sliced[i] = 1;
    start = read_clock(CLOCK_MONOTONIC);
    for (long i = 0; i < THREADS; i++) {
        if (late && i == THREADS / 2) usleep(seconds * 1e6 / 3);
        pthread_create(&threads[i], NULL, work, (void *)i);
        if (i == (late ? THREADS / 2 - 1 : THREADS - 1)) { printf("ready\n"); fflush(stdout); }
    }
    if (argc > 2 && !strcmp(argv[2], "headless")) pthread_exit(NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    printf("done %d\n", sliced[0] > 1 && sliced[CELLS - 1] > 1);
    return 7;
}
