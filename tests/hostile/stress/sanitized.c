/* Blocks that only other blocks point to, and blocks that threads write, free and get again: leaks and races to a
 * sanitizer that does not see all of them allocated and freed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 400, THREADS = 4 };

static long table[8192];
static char ***volatile held;

__attribute__((noinline)) static void *block(size_t size) {
    void *p = malloc(size);
    __asm__ volatile("" : : "r"(p) : "memory");
    return p;
}

static void *work(void *unused) {
    long sum = 0;
    (void)unused;
    for (int i = 0; i < 1000; i++) {
        char *p = block(100 + 10 * i);
        memset(p, 1, 100);
        sum += p[3];
        free(p);
    }
    return (void *)sum;
}

int main(void) {
    pthread_t threads[THREADS];
    long sum = 0, different = 0;
    held = block(COUNT * sizeof *held);
    for (int i = 0; i < COUNT; i++) {
        held[i] = block(8000);
        held[i][0] = malloc(32);
        snprintf(held[i][0], 32, "%d", i);
        table[20 * i] = i;
    }
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    for (int i = 0; i < COUNT; i++) different += table[20 * i] != atoi(held[i][0]);
    printf("sum %ld, different %ld\n", sum, different);
    return 0;
}
