/* Call sites of C: directly, and through a wrapper that is named like an allocator. */
#ifndef ROUNDS
#define ROUNDS 1
#endif
#include <stdio.h>
#include <stdlib.h>

#define SITE __attribute__((noinline, noclone))
enum { MIB = 1 << 20 };

static volatile double sum;

SITE static void use(volatile double *a, size_t bytes) {
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < bytes / sizeof *a; i += 8) a[i] = a[i] * 0.5 + 1;
    sum = a[0];
}

SITE void *grid_alloc(size_t n) { void *p = malloc(n); __asm__ volatile("" ::: "memory"); return p; }
SITE void *xmalloc(size_t n) { void *p = malloc(n); __asm__ volatile("nop" ::: "memory"); return p; }
SITE void *table(size_t n) { void *p = xmalloc(n); __asm__ volatile("" ::: "memory"); return p; }

int main(void) {
    use(grid_alloc(1 * MIB), 1 * MIB);
    use(table(2 * MIB), 2 * MIB);
    puts("ok");
    return 0;
}
