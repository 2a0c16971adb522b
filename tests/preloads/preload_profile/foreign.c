/* An allocator as a library: counts its calls, so that a program can see that it was used. It maps its
   arena through mmap, which is not to be reported as the program's mapping. It lacks the newer functions. */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

static char *arena, *next;
int foreign_calls;

void *malloc(size_t n) {
    if (!arena) next = arena = mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *p = __atomic_fetch_add(&next, ((n + 15) & ~(size_t)15) + 16, __ATOMIC_RELAXED);
    *(size_t *)p = n;
    __atomic_fetch_add(&foreign_calls, 1, __ATOMIC_RELAXED);
    return p + 16;
}
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return malloc(a * b); }
void *realloc(void *p, size_t n) {
    void *q = malloc(n);
    if (p) {
        size_t old = ((size_t *)p)[-2];
        memcpy(q, p, old < n ? old : n);
    }
    return q;
}
