/* What lives for one step only, and what does not: brief WHAT THREADS STEPS BYTES.
 *   scratch  every thread allocates, uses and frees an array in every step; its memory was used and freed before
 *   growth   the same, but the array grows by realloc within the step
 *   shared   main allocates and fills an array in every step, all threads read all of it
 *   pool     main allocates buffers, the other threads fill, read and free them
 *   kept     main allocates and fills one array for each thread, which that thread uses for the whole run */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, SLOTS = 8, ROUNDS = 24 };

static const char *what;
static int threads, steps;
static size_t bytes;
static pthread_barrier_t barrier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static double *array, *own[MOST], *slots[SLOTS];
static int filled, ended;
static double sums[MOST];

#define SITE __attribute__((noinline, noclone)) static double *
SITE scratch(size_t n) { double *p = malloc(n); __asm__ volatile(""); return p; }
SITE growth(double *old, size_t n) { double *p = realloc(old, n); __asm__ volatile("nop"); return p; }
SITE shared(size_t n) { double *p = malloc(n); __asm__ volatile("nop; nop"); return p; }
SITE pool(size_t n) { double *p = malloc(n); __asm__ volatile("nop; nop; nop"); return p; }
SITE kept(size_t n) { double *p = malloc(n); __asm__ volatile("nop; nop; nop; nop"); return p; }

static int is(const char *name) { return strcmp(what, name) == 0; }

static void fill(double *a, size_t n, double x) { for (size_t i = 0; i < n; i++) a[i] = x + i; }

/* The address goes through memory, so that each round reads the array again. */
static double read_all(double *a, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i];
    __asm__ volatile("" : : "r"(a) : "memory");
    return sum;
}

/* In an order that no prefetcher knows. */
static double read_anywhere(double *a, size_t n, unsigned long seed) {
    double sum = 0;
    for (size_t i = 0; i < n / 16; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        sum += a[(seed >> 33) % n];
    }
    return sum;
}

static double *take(void) {
    double *a = NULL;
    pthread_mutex_lock(&lock);
    while (filled == 0 && !ended) pthread_cond_wait(&changed, &lock);
    if (filled > 0) a = slots[--filled];
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return a;
}

static void put(double *a) {
    pthread_mutex_lock(&lock);
    while (filled == SLOTS) pthread_cond_wait(&changed, &lock);
    slots[filled++] = a;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static double step(long id, int i) {
    size_t n = bytes / sizeof(double);
    double sum = 0;
    if (is("scratch")) {
        double *a = scratch(bytes);
        fill(a, n, i);
        for (int r = 0; r < ROUNDS; r++) sum += read_all(a, n);
        free(a);
    } else if (is("growth")) {
        double *a = NULL;
        for (size_t now = bytes; now <= 16 * bytes; now += bytes) {
            a = growth(a, now);
            fill(a + (now - bytes) / sizeof *a, n, i);
            sum += read_all(a, now / sizeof *a);
        }
        free(a);
    } else if (is("shared")) {
        pthread_barrier_wait(&barrier);
        /* So often that filling it, which no placement shortens, is the smaller part of the time on any machine. */
        for (int r = 0; r < 4; r++) sum += read_anywhere(array, n, id * 7919 + i * 4 + r);
        pthread_barrier_wait(&barrier);
    } else if (is("kept")) {
        sum = read_anywhere(own[id], n, i);
    }
    return sum;
}

static void *work(void *arg) {
    long id = (long)arg;
    /* Leaves pages behind for the allocator to give out again. */
    char *used = malloc(96 << 10);
    memset(used, 1, 96 << 10);
    __asm__ volatile("" : : "r"(used) : "memory");
    free(used);
    if (is("pool")) {
        for (double *a; (a = take()) != NULL; free(a)) {
            fill(a, bytes / sizeof *a, id);
            for (int r = 0; r < ROUNDS; r++) sums[id] += read_all(a, bytes / sizeof *a);
        }
        return NULL;
    }
    for (int i = 0; i < steps; i++) sums[id] += step(id, i);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 5) return 1;
    what = argv[1], threads = atoi(argv[2]), steps = atoi(argv[3]), bytes = strtoul(argv[4], NULL, 10);
    pthread_t started[MOST];
    pthread_barrier_init(&barrier, NULL, threads + 1);
    for (int i = 0; i < threads && is("kept"); i++) fill(own[i] = kept(bytes), bytes / sizeof(double), i);
    for (long i = 0; i < threads; i++) pthread_create(&started[i], NULL, work, (void *)i);
    for (int i = 0; i < steps && is("shared"); i++) {
        fill(array = shared(bytes), bytes / sizeof(double), i);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        free(array);
    }
    for (int i = 0; i < steps && is("pool"); i++) put(pool(bytes));
    pthread_mutex_lock(&lock);
    ended = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < threads; i++) pthread_join(started[i], NULL);
    printf("%d threads\n", threads);
    return 0;
}
