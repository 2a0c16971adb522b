/* Blocks of malloc and the functions that an allocator has beside those of C (the library of own_malloc.c), as programs
 * use jemalloc's sallocx or mi_usable_size. An allocator knows its own blocks only, and stops the program at others.
 *   -D DIRECT   the program calls such functions itself
 *   -D WEAK     it calls them if the allocator in use has them
 *   -D PLUGIN   a library that calls them
 *   (none)      the program uses C's functions only; its argument is a library that it gives blocks to */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WEAK
#define MAYBE __attribute__((weak))
#else
#define MAYBE
#endif
size_t own_size(void *) MAYBE;
void own_release(void *) MAYBE;

size_t take(void *p);
#if defined(PLUGIN) || defined(DIRECT) || defined(WEAK)
size_t take(void *p) {
#ifdef WEAK
    if (!own_size) return free(p), 0;
#endif
    size_t n = own_size(p);
    own_release(p);
    return n;
}
#endif

#ifndef PLUGIN
static char *block(size_t n) {
    char *p = malloc(n);
    if (!p) abort();
    return memset(p, 1, n);
}

int main(int argc, char **argv) {
    long wrong = 0;
    for (size_t n = 10; n < 1 << 20; n *= 3) free(block(n));
#if defined(DIRECT) || defined(WEAK)
    size_t (*const give)(void *) = take;
#else
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : 0;
    if (argc > 1 && !library) return puts(dlerror()), 1;
    size_t (*const give)(void *) = library ? (size_t (*)(void *))dlsym(library, "take") : 0;
#endif
    for (size_t n = 10; n < 1 << 20; n *= 3) {
        char *p = block(n);
        if (give) wrong += give(p) != n;
        else free(p);
    }
    /* An allocator may return a block, or null. */
    for (size_t n = 10; n < 1 << 20; n *= 3) {
        void *volatile p = realloc(block(n), 0);
        printf("%d", p != 0);
        free(p);
    }
    printf(" wrong %ld\n", wrong);
    return argc > 9 && argv[0] == 0;
}
#endif
