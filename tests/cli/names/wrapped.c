/* Arrays from a wrapper of a wrapper, which no list of names knows, by functions and lines of their own. REBUILT is
   another build: other addresses and lines. Four threads sweep `hot` in slices; `cold` is hardly used. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#define OUT_OF_LINE __attribute__((noinline, noclone))
enum { THREADS = 4 };
static const long HOT = 4 << 20, COLD = 1 << 20, GRID = 2 << 20;
OUT_OF_LINE static void *obtain(long bytes) {
    void *p = malloc(bytes);
    if (!p)
        abort();
    return p;
}
OUT_OF_LINE static double *numbers(long n) {
    double *p = obtain(n * sizeof(double));
    p[0] = n;
    return p;
}
static double *hot, *cold, *grid;
OUT_OF_LINE static double *build_grid(long n) {
    double *p = numbers(n);
    p[1] = 2;
    return p;
}
static void *sweep(void *arg) {
    long me = (long)arg;
    for (int round = 0; round < ROUNDS; round++) {
        for (long i = me * HOT / THREADS; i < (me + 1) * HOT / THREADS; i++)
            hot[i] = hot[i] * 0.5 + i;
        for (long i = me * GRID / THREADS; i < (me + 1) * GRID / THREADS; i++)
            grid[i] = grid[i] * 0.5 + i;
    }
    return NULL;
}
int main(void) {
#ifdef REBUILT
    puts("another build");
    fflush(stdout);
#endif
    hot = numbers(HOT);
    cold = numbers(COLD);
    grid = build_grid(GRID);
    for (long i = 0; i < HOT; i++)
        hot[i] = i;
    for (long i = 0; i < GRID; i++)
        grid[i] = i;
    for (long i = 0; i < COLD; i += 4)
        cold[i] = i;
    pthread_t threads[THREADS];
    for (long t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, sweep, (void *)t);
    for (long t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    printf("%g\n", hot[1] + cold[4] + grid[2]);
}
