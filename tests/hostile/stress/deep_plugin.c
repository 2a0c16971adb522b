/* The library that deep.c loads with RTLD_DEEPBIND. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

char *block(size_t which, size_t *size);

long take(char *p, size_t n, int mark, int how);
long take(char *p, size_t n, int mark, int how) {
    long damaged = malloc_usable_size(p) < n;
    size_t left = n;
    void *c;
    switch (how) {
    case 1: p = realloc(p, left = 3 * n); break;
    case 2: p = realloc(p, left = n / 2); break;
    case 3: /* the C library's own, by name */
        for (size_t i = 0; i < n; i++) damaged += p[i] != (char)mark;
        c = dlopen("libc.so.6", RTLD_LAZY);
        ((void (*)(void *))dlsym(c, "free"))(p);
        return damaged;
    }
    for (size_t i = 0; i < n && i < left; i++) damaged += p[i] != (char)mark;
    free(p);
    return damaged;
}

char *give(size_t n);
char *give(size_t n) { return calloc(1, n); }

__attribute__((constructor)) static void begin(void) {
    for (size_t i = 0; i < 20; i++) {
        size_t n;
        char *p = block(i, &n);
        if (take(p, n, (int)i, (int)(i / 5))) abort();
    }
}
