/* Eight threads call all allocation functions with blocks of many sizes, each with blocks of its own: no race. The status
 * is 8. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, BLOCKS = 64, CALLS = 3000 };

static void *work(void *argument) {
    unsigned random = (unsigned)(uintptr_t)argument;
    char *block[BLOCKS] = {0};
    size_t size[BLOCKS] = {0};
    for (int i = 0; i < CALLS; i++) {
        random = random * 1103515245 + 12345;
        int k = (random >> 16) % BLOCKS;
        size_t n = (random >> 8) % ((random & 7) == 0 ? 400000 : 3000) + 1;
        if (block[k] && (block[k][0] != (char)k || block[k][size[k] - 1] != (char)k)) exit(99);
        int call = (random >> 4) % 5;
        if (call != 1) free(block[k]);
        if (call == 0) block[k] = malloc(n);
        if (call == 1) block[k] = realloc(block[k], n);
        if (call == 2) block[k] = calloc(1, n);
        if (call == 3) block[k] = aligned_alloc(64, (n + 63) & ~63ul);
        if (call == 4 && posix_memalign((void **)&block[k], 4096, n)) exit(98);
        size[k] = n;
        memset(block[k], k, n);
    }
    for (int k = 0; k < BLOCKS; k++) free(block[k]);
    return 0;
}

int main(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    puts("fine");
    return 8;
}
