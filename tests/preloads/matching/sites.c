/* Allocations of many sizes from few call sites. sites [threads]: what it allocates is checked, what the rules took is in
 * the report. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1024 };

#define SITE __attribute__((noinline, noclone)) static void *
SITE make(size_t n) { void *p = malloc(n); __asm__ volatile(""); return p; }
SITE grow(void *p, size_t n) { p = realloc(p, n); __asm__ volatile("nop"); return p; }
SITE outer(size_t n) { void *p = make(n); __asm__ volatile("nop; nop"); return p; }

static void *work(void *arg) {
    for (int i = 0; i < 100; i++) {
        char *p = make(64 * KIB);
        memset(p, 1, 64 * KIB);
        free(p);
    }
    return arg;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 0;
    pthread_t t[64];
    for (int i = 0; i < threads; i++) pthread_create(&t[i], NULL, work, NULL);
    for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
    if (threads) return 0;
    /* 8, 16, .. 80 KiB: instances 1 to 10 of make. */
    char *kept[10];
    for (int i = 0; i < 10; i++) memset(kept[i] = make((i + 1) * 8 * KIB), i, (i + 1) * 8 * KIB);
    char *inner = outer(640 * KIB); /* instance 11 of make, from outer */
    memset(inner, 1, 640 * KIB);
    /* One object that grows five times, and another one. */
    char *p = NULL;
    for (int i = 1; i <= 5; i++) {
        p = grow(p, i * 100 * KIB);
        memset(p + (i - 1) * 100 * KIB, i, 100 * KIB);
    }
    for (int i = 0; i < 500 * KIB; i++)
        if (p[i] != 1 + i / (100 * KIB)) return printf("realloc lost byte %d\n", i), 1;
    char *q = grow(NULL, 40 * KIB);
    memset(q, 1, 40 * KIB);
    for (int i = 0; i < 10; i++)
        if (kept[i][8 * KIB * i] != i) return printf("object %d changed\n", i), 1;
    puts("ok");
    return 0;
}
