/* Every hooked allocation function once, from a known function, with a size nobody else uses. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NOINLINE __attribute__((noinline))

static void *volatile keep;

NOINLINE void *innermost(size_t n) { keep = malloc(n); return keep; }
NOINLINE void *middle(size_t n) { char *p = innermost(n); p[0] = 1; return p; }
NOINLINE void *outermost(size_t n) { char *p = middle(n); p[1] = 1; return p; }

NOINLINE void *deep(int depth, size_t n) {
    void *p = depth ? deep(depth - 1, n) : malloc(n);
    keep = p;
    return p;
}

/* A frame whose size is not known at compile time, so that it needs rbp. */
NOINLINE void *with_alloca(size_t n) {
    volatile char *room = __builtin_alloca(n % 977 + 1);
    room[0] = 1;
    void *p = innermost(n);
    keep = p;
    return p;
}

/* gcc realigns the stack of such a function through DRAP when it also needs its arguments. */
NOINLINE void *realigned(size_t n, ...) {
    _Alignas(64) volatile char block[128];
    volatile char *room = __builtin_alloca(n % 97 + 1);
    block[0] = room[0] = 1;
    void *p = innermost(n);
    keep = p;
    return p;
}

NOINLINE void family(void) {
    void *p = 0;
    free(calloc(100, 1001));
    p = realloc(0, 20001);
    p = realloc(p, 20002);
    p = reallocarray(p, 3, 10001);
    if (realloc(p, (size_t)1 << 60)) abort(); /* fails, the block stays */
    free(p);
    if (reallocarray(0, SIZE_MAX, 2)) abort();
    free(memalign(256, 20011));
    free(aligned_alloc(256, 20224));
    if (posix_memalign(&p, 256, 20013)) abort();
    if ((uintptr_t)p % 256) abort();
    free(p);
    free(valloc(20014));
    free(pvalloc(20015));
    free(strdup("a string"));
}

NOINLINE void mappings(void) {
    char *p = mmap(0, 300001, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p = mremap(p, 303104, 20 << 20, MREMAP_MAYMOVE);
    p[(20 << 20) - 1] = 1;
    munmap(p, 20 << 20);
    if (munmap((char *)p + 1, 4096) == 0) abort();
}

int main(void) {
    free(outermost(30001));
    free(deep(20, 30002));
    free(deep(3, 31003));
    free(with_alloca(30004));
    free(realigned(30005));
    family();
    mappings();
    errno = 1234;
    free(malloc(30006));
    if (errno != 1234) abort();
    errno = 0;
    if (malloc((size_t)1 << 62) || errno != ENOMEM) abort();
    puts("calls: done");
    return 0;
}
