/* -DLIBRARY: an allocator whose functions are chosen when the program starts (STT_GNU_IFUNC), as an allocator with code
 * for several processors may do. Otherwise a program that uses it:   indirect PATH
 * releases and resizes blocks by the functions that it looks up in the library PATH. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#ifdef LIBRARY
#include <sys/mman.h>

enum { HEADER = 16, BLOCK = 4 << 20 };
static char *next, *end;
long released_by_indirect;

static void *get(size_t n) {
    size_t bytes = (n + HEADER + 15) & ~(size_t)15;
    if (next + bytes > end) {
        size_t mapped = bytes > BLOCK ? bytes : BLOCK;
        next = mmap(0, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (next == MAP_FAILED) return next = end = 0;
        end = next + mapped;
    }
    char *p = next;
    next += bytes;
    *(size_t *)p = n;
    return p + HEADER;
}

static size_t size_of(void *p) { return p ? *(size_t *)((char *)p - HEADER) : 0; }
static void *get_zeroed(size_t a, size_t b) { return get(a * b); }
static void put(void *p) { released_by_indirect += p != 0; }

static void *change(void *p, size_t n) {
    void *fresh = get(n);
    size_t old = size_of(p);
    if (p && fresh) memcpy(fresh, p, old < n ? old : n);
    return fresh;
}

#define INDIRECT(name, code, type) \
    static __typeof__(&code) choose_##name(void) { return code; } \
    type __attribute__((ifunc("choose_" #name)))
INDIRECT(malloc, get, void *malloc(size_t));
INDIRECT(free, put, void free(void *));
INDIRECT(calloc, get_zeroed, void *calloc(size_t, size_t));
INDIRECT(realloc, change, void *realloc(void *, size_t));
INDIRECT(malloc_usable_size, size_of, size_t malloc_usable_size(void *));
#else
#include <dlfcn.h>
#include <stdlib.h>

extern long released_by_indirect;

__attribute__((noinline)) static unsigned char *block(size_t n) {
    unsigned char *p = malloc(n);
    memset(p, (int)(n % 251), n);
    return p;
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {100, 3000, 5000, 70000, 3 << 20};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    unsigned char *blocks[COUNT];
    int damaged = 0;
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : 0;
    if (!library) return 2;
    void (*release)(void *) = (void (*)(void *))dlsym(library, "free");
    void *(*resize)(void *, size_t) = (void *(*)(void *, size_t))dlsym(library, "realloc");
    size_t (*usable)(void *) = (size_t(*)(void *))dlsym(library, "malloc_usable_size");
    for (int i = 0; i < COUNT; i++) blocks[i] = block(sizes[i]);
    for (int i = 0; i < COUNT; i++) {
        damaged += usable(blocks[i]) < sizes[i];
        if (i % 2) blocks[i] = resize(blocks[i], 2 * sizes[i]);
        for (size_t j = 0; j < sizes[i]; j++) damaged += blocks[i][j] != sizes[i] % 251;
    }
    long before = released_by_indirect;
    release(blocks[0]);
    release(blocks[3]);
    long by_name = released_by_indirect - before;
    free(blocks[1]);
    free(blocks[2]);
    free(blocks[4]);
    printf("%d blocks, damaged %d, released by name %ld\n", COUNT, damaged, by_name);
    return 0;
}
#endif
