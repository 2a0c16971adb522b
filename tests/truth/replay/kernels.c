/* Kernels with known addresses for the replay tests.
 *
 * usage: kernels KERNEL step        run once on small data between two int3, for single-stepping
 *        kernels KERNEL SECONDS     print `object NAME ADDR BYTES` and `slice NAME TID ADDR BYTES`, then
 *                                   `ready`, wait for a line on stdin, run that long
 */
#define _GNU_SOURCE
#ifdef _OPENMP
#include <omp.h>
#else
static int omp_get_max_threads(void) { return 1; }
static int omp_get_thread_num(void) { return 0; }
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct node { struct node *next; long value, pad[6]; };

static long n, side;
static double *a, *b, *c;
static int *idx;
static struct node **heads;
static volatile double sink;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline)) void triad(void) {
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; i++) a[i] = b[i] + 3.0 * c[i];
}

/* Without aliasing, so that compilers may use a vector gather where the machine has one. */
__attribute__((noinline)) void gather(void) {
    double *restrict g = a, *restrict in = b, *restrict add = c;
    int *restrict at = idx;
#pragma omp parallel for simd schedule(static)
    for (long i = 0; i < n; i++) g[i] = add[i] * 2.0 + in[at[i]];
}

__attribute__((noinline)) void stencil(void) {
    long s = side, p = side * side;
#pragma omp parallel for schedule(static)
    for (long k = 1; k < s - 1; k++)
        for (long j = 1; j < s - 1; j++)
            for (long i = 1; i < s - 1; i++) {
                long x = k * p + j * s + i;
                a[x] = 0.4 * b[x] + 0.1 * (b[x - 1] + b[x + 1] + b[x - s] + b[x + s] + b[x - p] + b[x + p]);
            }
}

__attribute__((noinline)) void chase(void) {
#pragma omp parallel
    {
        long sum = 0;
        for (struct node *p = heads[omp_get_thread_num()]; p; p = p->next) sum += p->value;
        sink = sum;
    }
}

/* Branches inside the loop: merges the flags must decide, or nobody can. */
__attribute__((noinline)) void branchy(void) {
    long s = 0;
    for (long i = 0; i < n; i++) {
        if (idx[i] & 1) s += idx[i] * 3;
        else s -= idx[i];
        if (b[i] > 0.5) a[i] = b[i] * s;
        else c[i] += 1.0;
    }
    sink = s;
}

/* A sorted table searched by bisection: which half is next depends on what was loaded. */
static long place(const double *table, long count, double key) {
    long low = 0, high = count;
    while (low < high) {
        long middle = (low + high) / 2;
        if (table[middle] < key) low = middle + 1;
        else high = middle;
    }
    return low;
}

__attribute__((noinline)) void bisect(void) {
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; i++) a[i] = place(c, n, b[i] * n);
}

/* Calls into the mathematics library, whose tables are its own. */
__attribute__((noinline)) void libm(void) {
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; i++) a[i] = exp(b[i]) + sin(c[i]);
}

static unsigned long rng = 88172645463325252ul;
static unsigned long rnd(void) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    return rng ^= rng << 17;
}

static void *array(size_t bytes) {
    void *p = aligned_alloc(4096, (bytes + 4095) & ~4095ul);
    if (!p) abort();
    return p;
}

static void slices(const char *name, void *base, size_t elem, long lo, long count) {
    int threads = omp_get_max_threads();
#pragma omp parallel for ordered schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        long from = lo + count * t / threads, to = lo + count * (t + 1) / threads;
#pragma omp ordered
        printf("slice %s %d %lu %lu\n", name, (int)gettid(), (unsigned long)base + from * elem, (to - from) * elem);
    }
}

static void list(int t, struct node *nodes, long count) {
    long *order = malloc(count * sizeof *order);
    for (long i = 0; i < count; i++) order[i] = i;
    for (long i = count - 1; i > 0; i--) {
        long j = rnd() % (i + 1), x = order[i];
        order[i] = order[j];
        order[j] = x;
    }
    for (long i = 0; i < count; i++) {
        nodes[order[i]].next = i + 1 < count ? &nodes[order[i + 1]] : NULL;
        nodes[order[i]].value = i;
    }
    heads[t] = &nodes[order[0]];
    free(order);
}

static void setup(const char *kernel, int small) {
    side = small ? 34 : 130;
    n = strcmp(kernel, "stencil") ? (small ? 4000 : 1 << 22) : side * side * side;
    a = array(n * sizeof *a);
    b = array(n * sizeof *b);
    c = array(n * sizeof *c);
    idx = array(n * sizeof *idx);
    for (long i = 0; i < n; i++) {
        a[i] = 0;
        b[i] = rnd() / 1.8e19;
        c[i] = i;
        idx[i] = rnd() % n;
    }
    int threads = omp_get_max_threads();
    heads = malloc(threads * sizeof *heads);
    if (!strcmp(kernel, "chase")) {
        long count = small ? 3000 : 1 << 18;
        struct node *nodes = array(threads * count * sizeof *nodes);
        for (int t = 0; t < threads; t++) list(t, nodes + t * count, count);
        printf("object nodes %lu %lu\n", (unsigned long)nodes, threads * count * sizeof *nodes);
        slices("nodes", nodes, sizeof *nodes, 0, threads * count);
        return;
    }
    printf("object a %lu %lu\n", (unsigned long)a, n * sizeof *a);
    printf("object b %lu %lu\n", (unsigned long)b, n * sizeof *b);
    printf("object c %lu %lu\n", (unsigned long)c, n * sizeof *c);
    printf("object idx %lu %lu\n", (unsigned long)idx, n * sizeof *idx);
    if (!strcmp(kernel, "stencil")) {
        slices("a", a, side * side * sizeof *a, 1, side - 2);
        return;
    }
    slices("a", a, sizeof *a, 0, n);
    slices("c", c, sizeof *c, 0, n);
    slices("idx", idx, sizeof *idx, 0, n);
    if (strcmp(kernel, "gather")) slices("b", b, sizeof *b, 0, n);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    void (*run)(void) = !strcmp(argv[1], "triad")   ? triad
                      : !strcmp(argv[1], "gather")  ? gather
                      : !strcmp(argv[1], "stencil") ? stencil
                      : !strcmp(argv[1], "branchy") ? branchy
                      : !strcmp(argv[1], "bisect")  ? bisect
                      : !strcmp(argv[1], "libm")    ? libm
                                                    : chase;
    int step = !strcmp(argv[2], "step");
    setup(argv[1], step);
    fflush(stdout);
    if (step) {
        run();
        __asm__ volatile("int3");
        run();
        __asm__ volatile("int3");
        return 0;
    }
    char line[16];
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    for (double end = now() + atof(argv[2]); now() < end;) run();
    return 0;
}
