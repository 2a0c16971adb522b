/* Random calls of the allocator on several threads, with every promise of C checked: contents, alignment, usable size,
 * zeroes of calloc, what realloc keeps. Objects travel between threads and are freed by whoever finds them.
 *
 * churn [operations per thread] [threads] [seed]      ends with status 1 at the first broken promise
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4096 };

struct object {
    size_t size;
    unsigned char mark;
    char *bytes;
};

static _Atomic(struct object *) shelf[SLOTS];
static atomic_long done;
static long operations;

static uint64_t next(uint64_t *s) {
    *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
    return *s;
}

#define SITE __attribute__((noinline, noclone)) static void *
SITE matched_malloc(size_t n) { void *p = malloc(n); __asm__ volatile(""); return p; }
SITE matched_calloc(size_t n) { void *p = calloc(1, n); __asm__ volatile(""); return p; }
SITE matched_realloc(void *p, size_t n) { p = realloc(p, n); __asm__ volatile(""); return p; }
SITE matched_memalign(size_t a, size_t n) { void *p = memalign(a, n); __asm__ volatile(""); return p; }
SITE plain_malloc(size_t n) { void *p = malloc(n); __asm__ volatile(""); return p; }
SITE plain_realloc(void *p, size_t n) { p = realloc(p, n); __asm__ volatile(""); return p; }

static void broken(const char *what, struct object *o) {
    printf("%s: object of %zu bytes at %p\n", what, o->size, (void *)o->bytes);
    fflush(stdout);
    _Exit(1);
}

static void check(struct object *o, size_t size) {
    size_t step = size > 8192 ? 509 : 1;
    for (size_t i = 0; i < size; i += step)
        if ((unsigned char)o->bytes[i] != (unsigned char)(o->mark + i)) broken("contents changed", o);
}

static void fill(struct object *o, uint64_t r) {
    o->mark = (unsigned char)(r >> 40);
    for (size_t i = 0; i < o->size; i++) o->bytes[i] = (char)(o->mark + i);
    if (malloc_usable_size(o->bytes) < o->size) broken("usable size too small", o);
}

static size_t some_size(uint64_t r) {
    switch (r >> 60) {
    case 0: return r % 70000;
    case 1: return 4000 + r % 300;
    case 2: return r % 4096;
    case 3: return 16 * (r % 20);
    default: return r % 400;
    }
}

static struct object *make(uint64_t *s) {
    uint64_t r = next(s);
    struct object *o = plain_malloc(sizeof *o);
    size_t align = 16;
    o->size = some_size(next(s));
    switch (r % 5) {
    case 0: o->bytes = matched_calloc(o->size); break;
    case 1: o->bytes = matched_memalign(align = (size_t)1 << (4 + r / 8 % 10), o->size); break;
    case 2: o->bytes = plain_malloc(o->size); break;
    default: o->bytes = matched_malloc(o->size);
    }
    if (!o->bytes) {
        if (o->size) broken("no memory", o);
        free(o);
        return NULL;
    }
    if ((uintptr_t)o->bytes % align) broken("not aligned", o);
    if (r % 5 == 0)
        for (size_t i = 0; i < o->size; i++)
            if (o->bytes[i]) broken("calloc not zero", o);
    fill(o, next(s));
    return o;
}

static struct object *change(struct object *o, uint64_t *s) {
    size_t size = some_size(next(s)), kept = size < o->size ? size : o->size;
    char *bytes = next(s) % 2 ? matched_realloc(o->bytes, size) : plain_realloc(o->bytes, size);
    if (!bytes) {
        if (size) broken("no memory", o);
        free(o); /* realloc(p, 0) freed the object */
        return NULL;
    }
    o->bytes = bytes;
    check(o, kept);
    o->size = size;
    fill(o, next(s));
    return o;
}

static void *work(void *arg) {
    uint64_t s = 88172645463325252ull ^ ((uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15ull);
    for (long i = 0; i < operations; i++) {
        uint64_t r = next(&s);
        struct object *o = atomic_exchange(&shelf[r % SLOTS], NULL);
        if (!o) {
            o = make(&s);
        } else {
            check(o, o->size);
            if (r >> 62 == 0) {
                o = change(o, &s);
            } else if (r >> 62 != 1) {
                free(o->bytes);
                free(o);
                o = NULL;
            }
        }
        if (o && (o = atomic_exchange(&shelf[next(&s) % SLOTS], o))) {
            check(o, o->size);
            free(o->bytes);
            free(o);
        }
        atomic_fetch_add_explicit(&done, 1, memory_order_relaxed);
    }
    return NULL;
}

int main(int argc, char **argv) {
    operations = argc > 1 ? atol(argv[1]) : 100000;
    long threads = argc > 2 ? atol(argv[2]) : 4, seed = argc > 3 ? atol(argv[3]) : 1;
    pthread_t team[64];
    if (threads < 1 || threads > 64) return 2;
    for (long t = 0; t < threads; t++) pthread_create(&team[t], NULL, work, (void *)(seed * 100 + t));
    for (long t = 0; t < threads; t++) pthread_join(team[t], NULL);
    for (int i = 0; i < SLOTS; i++) {
        struct object *o = shelf[i];
        if (o) check(o, o->size), free(o->bytes), free(o);
    }
    printf("%ld operations\n", atomic_load(&done));
    return 0;
}
