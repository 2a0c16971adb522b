/* The main thread allocates one buffer per worker at one call site, and each worker works on its own. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 8, DOUBLES = 1 << 18 };

static double *buffers[WORKERS];

__attribute__((noinline, noclone)) static double *buffer_new(void) {
    double *b = malloc(DOUBLES * sizeof *b);
    for (int i = 0; i < DOUBLES; i++) b[i] = i; /* touched by the main thread first */
    return b;
}

static void *work(void *arg) {
    double *b = arg;
    for (int round = 0; round < 1200; round++)
        for (unsigned i = 0; i < DOUBLES; i += 8) b[i] = b[(i * 2654435761u) % DOUBLES] * 0.5 + 1;
    return NULL;
}

int main(void) {
    pthread_t t[WORKERS];
    for (int i = 0; i < WORKERS; i++) buffers[i] = buffer_new();
    for (int i = 0; i < WORKERS; i++) pthread_create(&t[i], NULL, work, buffers[i]);
    double sum = 0;
    for (int i = 0; i < WORKERS; i++) pthread_join(t[i], NULL), sum += buffers[i][8];
    printf("%s\n", sum > 0 ? "ok" : "odd");
    return 0;
}
