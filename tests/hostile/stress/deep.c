/* Loads a library with RTLD_DEEPBIND, which therefore calls the C library's free and realloc, not those of a preloaded
 * library, and gives it blocks: in its constructor, later, and those from before it was loaded. Argument 1 is the
 * library, argument 2 says how it is loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OLD = 400 };

static const size_t sizes[] = {24, 600, 5000, 70000, 1 << 20};

/* The library's constructor calls it. */
char *block(size_t which, size_t *size);
char *block(size_t which, size_t *size) {
    *size = sizes[which % (sizeof sizes / sizeof *sizes)];
    char *p = malloc(*size);
    if (p) memset(p, (int)which, *size);
    return p;
}

int main(int argc, char **argv) {
    if (argc < 3) return 1;
    char *old[OLD];
    size_t size[OLD];
    for (int i = 0; i < OLD; i++) old[i] = block(i, &size[i]);
    int lazy = !strcmp(argv[2], "lazy"), space = !strcmp(argv[2], "space");
    int flags = (lazy ? RTLD_LAZY : RTLD_NOW) | RTLD_DEEPBIND;
    void *library = space ? dlmopen(LM_ID_BASE, argv[1], flags) : dlopen(argv[1], flags);
    if (!library) return puts(dlerror()), 1;
    long (*take)(char *, size_t, int, int) = (long (*)(char *, size_t, int, int))dlsym(library, "take");
    char *(*give)(size_t) = (char *(*)(size_t))dlsym(library, "give");
    long damaged = 0;
    for (int i = 0; i < OLD; i++) damaged += take(old[i], size[i], i, i / 5 % 4);
    for (int i = 0; i < OLD; i++) {
        old[i] = block(i, &size[i]);
        damaged += take(old[i], size[i], i, i / 5 % 4);
        char *p = give(size[i]);
        damaged += malloc_usable_size(p) < size[i];
        p = realloc(p, 2 * size[i]);
        p[2 * size[i] - 1] = 1;
        free(p);
    }
    printf("damaged %ld\n", damaged);
    return 0;
}
