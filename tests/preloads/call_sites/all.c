/* Call sites of C: directly, and through a wrapper that is named like an allocator.
 *
 * all [reads and writes per object]: four threads share each object after the main thread initialised it.
 */
#include <stdio.h>
#include <stdlib.h>

#define SITE __attribute__((noinline, noclone))
enum { MIB = 1 << 20 };

static size_t accesses;
static volatile double sum;

#ifdef PADDING
SITE void padding(void) { sum = sum * 3 + accesses; }
#endif

SITE static void use(volatile double *a, size_t bytes) {
    size_t words = bytes / sizeof *a;
    for (size_t i = 0; i < words; i += 8) a[i] = 1;
    for (size_t done = 0; done < accesses; done += words / 8) {
#pragma omp parallel for schedule(static)
        for (size_t i = 0; i < words; i += 8) a[i] = a[i] * 0.5 + 1;
    }
    sum = a[0];
}

SITE void *grid_alloc(size_t n) { void *p = malloc(n); __asm__ volatile("" ::: "memory"); return p; }
SITE void *xmalloc(size_t n) { void *p = malloc(n); __asm__ volatile("nop" ::: "memory"); return p; }
SITE void *table(size_t n) { void *p = xmalloc(n); __asm__ volatile("" ::: "memory"); return p; }

int main(int argc, char **argv) {
    accesses = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
#ifdef PADDING
    padding();
#endif
    use(grid_alloc(1 * MIB), 1 * MIB);
    use(table(2 * MIB), 2 * MIB);
    puts("ok");
    return 0;
}
