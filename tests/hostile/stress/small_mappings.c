/* Maps 60,000 small mappings from a matched call site, each beside one from another call site, and then needs what a
 * program needs at any time: a thread, memory, a mapping, other access rights. Nothing may fail for want of mappings. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { MAPPINGS = 60000, PAGE = 4096 };

static inline __attribute__((always_inline)) void *map(size_t n) { return mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

__attribute__((noinline)) void *matched(void) {
    void *p = map(2 * PAGE);
    __asm__ volatile("" ::: "memory");
    return p;
}

static void *nothing(void *p) { return p; }

static long lines(const char *path) {
    FILE *f = fopen(path, "r");
    long n = 0;
    for (int c; f && (c = getc(f)) != EOF;) n += c == '\n';
    if (f) fclose(f);
    return n;
}

int main(void) {
    long failed = 0, limit = 0;
    FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
    if (!f || fscanf(f, "%ld", &limit) != 1) return 1;
    fclose(f);
    for (int i = 0; i < MAPPINGS; i++) {
        void *p = matched(), *q = map(PAGE);
        failed += p == MAP_FAILED || q == MAP_FAILED;
        if (i % 3 == 0 && munmap(p, PAGE)) failed++;
        if (i % 5 == 0 && mremap((char *)p + PAGE, PAGE, 3 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED) failed++;
    }
    pthread_t t;
    failed += pthread_create(&t, 0, nothing, 0) || pthread_join(t, 0);
    char *p = malloc(10 << 20), *q = map(3 * PAGE);
    failed += !p || q == MAP_FAILED || mprotect(q + PAGE, PAGE, PROT_READ);
    /* A quarter of the limit for placed objects, and these mappings themselves. */
    printf("failed %ld, room left %d\n", failed, lines("/proc/self/maps") < limit / 4 + MAPPINGS / 3 * 2 + 1000);
    free(p);
    return 0;
}
