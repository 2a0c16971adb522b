/* Releases and resizes blocks under the other names that C libraries have for free and realloc: `libc` by __libc_free,
 * __libc_realloc and cfree, `sized` by free_sized and free_aligned_sized where they exist. Checks every block. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void __libc_free(void *);
void *__libc_realloc(void *, size_t);
void cfree(void *) __attribute__((weak));
void free_sized(void *, size_t) __attribute__((weak));
void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));

static long damaged;

static char *filled(char *p, size_t n) {
    if (!p) abort();
    memset(p, (int)(n % 251), n);
    return p;
}

static void check(const char *p, size_t n, size_t before) {
    for (size_t i = 0; i < n; i++) damaged += (unsigned char)p[i] != before % 251;
}

int main(int argc, char **argv) {
    int libc = argc > 1 && !strcmp(argv[1], "libc");
    for (int round = 0; round < 30; round++) {
        for (size_t n = 24; n < 1 << 20; n = n * 5 / 2) {
            char *p = filled(malloc(n), n), *q = filled(aligned_alloc(64, (n + 63) / 64 * 64), n);
            char *r = filled(calloc(1, n), n);
            if (libc) {
                p = __libc_realloc(p, 3 * n);
                check(p, n, n);
                q = __libc_realloc(q, n / 2);
                check(q, n / 2, n);
                __libc_free(p), __libc_free(q);
                (cfree ? cfree : free)(r);
            } else {
                check(p, n, n), check(q, n, n), check(r, n, n);
                if (free_sized) free_sized(p, n), free_sized(r, n);
                else free(p), free(r);
                if (free_aligned_sized) free_aligned_sized(q, 64, (n + 63) / 64 * 64);
                else free(q);
            }
        }
        __libc_free(0);
    }
    printf("damaged %ld\n", damaged);
    return 0;
}
