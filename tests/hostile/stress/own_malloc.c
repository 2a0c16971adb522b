/* An executable that carries an allocator of its own, or a part of one, as programs do that link jemalloc statically
 * or count their allocations. It defines malloc, calloc, realloc and free, and one of these variants:
 *   (none)    nothing more, so reallocarray comes from the C library, which calls our realloc
 *   MEASURES  malloc_usable_size, too
 *   WRAPS     each of the four puts a header before a block of the next definition (dlsym(RTLD_NEXT))
 *   COUNTS    each of the four calls the C library's own entry, __libc_malloc and so on; aligned blocks are the C
 *             library's and end in our free
 *   LIBRARY   no main: a library that an executable links, with functions of its own for blocks (own_interface.c)
 *   LINKED    no allocator: the executable that links the library
 * A block that it did not hand out stops the program with the word DAMAGED. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC 0x6f776e206d616c6cull
struct head { uint64_t magic, size; };

atomic_ulong calls, frees; /* also those of the library */

__attribute__((unused, noreturn)) static void stop(const char *what) {
    if (write(1, what, strlen(what)) < 0) _exit(4);
    _exit(3);
}

#ifdef LINKED
#elif defined(COUNTS)
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);
void *malloc(size_t n) { calls++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { calls++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { calls++; return __libc_realloc(p, n); }
void free(void *p) { frees++; __libc_free(p); }
#else
#ifndef WRAPS
static char arena[64 << 20] __attribute__((aligned(16)));
static atomic_size_t used;
#endif

static void *take(size_t n) {
#ifdef WRAPS
    static void *(*next)(size_t);
    if (!next) next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    struct head *h = next(n + sizeof *h);
    if (!h) return 0;
#else
    size_t bytes = (n + sizeof(struct head) + 15) & ~(size_t)15, at = atomic_fetch_add(&used, bytes);
    if (at + bytes > sizeof arena) stop("DAMAGED: arena full\n");
    struct head *h = (struct head *)(arena + at);
#endif
    *h = (struct head){MAGIC, n};
    calls++;
    return h + 1;
}

static struct head *head_of(void *p) {
    struct head *h = (struct head *)p - 1;
    if (h->magic != MAGIC) stop("DAMAGED: a block of another allocator\n");
    return h;
}

void *malloc(size_t n) { return take(n); }

void *calloc(size_t n, size_t m) {
    size_t bytes;
    if (__builtin_mul_overflow(n, m, &bytes)) return 0;
    void *p = take(bytes);
    return p ? memset(p, 0, bytes) : 0;
}

void free(void *p) {
    if (!p) return;
    struct head *h = head_of(p);
    h->magic = 0;
    frees++;
#ifdef WRAPS
    static void (*next)(void *);
    if (!next) next = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    next(h);
#endif
}

void *realloc(void *p, size_t n) {
    if (!p) return take(n);
    struct head *h = head_of(p);
    void *q = take(n);
    memcpy(q, p, h->size < n ? h->size : n);
    free(p);
    return q;
}

#ifdef LIBRARY
size_t own_size(void *);
size_t own_size(void *p) { return head_of(p)->size; }
void own_release(void *);
void own_release(void *p) { head_of(p)->magic = 0; }
#endif

#ifdef MEASURES
size_t malloc_usable_size(void *p) { return p ? head_of(p)->size : 0; }
#endif
#endif

#ifndef LIBRARY
static void check(const unsigned char *p, size_t n, int mark) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != mark) stop("DAMAGED: contents\n");
}

int main(void) {
    unsigned char *p = 0;
    for (size_t n = 1; n <= 40; n++) {
        unsigned char *q = reallocarray(p, n, 997);
        if (!q) stop("DAMAGED: reallocarray failed\n");
        check(q, (n - 1) * 997, 7);
        memset(q, 7, n * 997);
        p = q;
    }
    volatile size_t huge = SIZE_MAX / 2;
    if (reallocarray(p, huge, 3)) stop("DAMAGED: an overflow succeeded\n");
    p = realloc(p, 100000);
    check(p, 40 * 997, 7);
    p = reallocarray(p, 10, 10);
    check(p, 100, 7);
    free(p);
    free(reallocarray(0, 10, 1000));

    /* Blocks that the C library allocates, and we release. */
    char *line = 0, *text = 0;
    size_t room = 0, length = 0;
    FILE *f = open_memstream(&text, &length);
    for (int i = 0; i < 2000; i++) fprintf(f, "%d ", i);
    fclose(f);
    FILE *in = fmemopen(text, length, "r");
    if (getline(&line, &room, in) != (ssize_t)length) stop("DAMAGED: getline\n");
    fclose(in);
    free(line), free(text);
    if (asprintf(&text, "%0*d", 9000, 5) != 9000) stop("DAMAGED: asprintf\n");
    free(text);
    free(realpath(".", 0));
#ifdef COUNTS
    /* The C library's, since we define none; our free hands them back to it. */
    void *aligned = 0;
    if (posix_memalign(&aligned, 4096, 20000)) return 5;
    memset(aligned, 1, 20000);
    free(aligned);
    aligned = aligned_alloc(64, 6400);
    memset(aligned, 1, 6400);
    aligned = realloc(aligned, 64000);
    free(aligned);
#endif
#ifdef LINKED
    unsigned seen = 1; /* a policy that places every allocation leaves none to the library */
#else
    unsigned seen = calls > 0 && frees > 0; /* printf may allocate */
#endif
    printf("own allocator used: %u\n", seen);
    return 0;
}
#endif
