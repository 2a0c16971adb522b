/* Per-thread private buffers from one call site.
 *
 * Truth: call site in make_buffer: one 4 MiB instance per thread, each used by its thread alone: private.
 *
 * private [iterations] [threads]
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 4 << 17 }; /* 4 MiB of uint64_t */
static int iterations = 8000, threads = 2;

__attribute__((noinline)) static uint64_t *make_buffer(void) { return malloc(sizeof(uint64_t) * WORDS); }

static void *work(void *arg) {
    uint64_t t = (uint64_t)arg, *b = make_buffer();
    if (!b) return NULL;
    for (long i = 0; i < WORDS; i++) b[i] = i ^ t;
    for (int it = 0; it < iterations; it++)
        for (long i = 1; i < WORDS; i++) b[i] = b[i] * 5 + b[i - 1];
    uint64_t sum = 0;
    for (long i = 0; i < WORDS; i++) sum = sum * 31 + b[i];
    free(b);
    return (void *)sum;
}

int main(int argc, char **argv) {
    if (argc > 1) iterations = atoi(argv[1]);
    if (argc > 2) threads = atoi(argv[2]);
    if (iterations < 1 || threads < 1 || threads > 1024) return 2;
    pthread_t *id = calloc(threads, sizeof *id);
    uint64_t sum = 0;
    for (long t = 0; t < threads; t++) pthread_create(&id[t], NULL, work, (void *)t);
    for (long t = 0; t < threads; t++) {
        void *part;
        pthread_join(id[t], &part);
        sum = sum * 31 + (uint64_t)part;
    }
    printf("threads %d  checksum %016llx\n", threads, (unsigned long long)sum);
    free(id);
    return 0;
}
