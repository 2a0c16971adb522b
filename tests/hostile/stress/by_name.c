/* Gives blocks to functions that it looks up by name, past the hooks of a preloaded library, as ctypes does and other
 * languages' ways of calling C:
 *   file FILE      dlsym with the handle of the file, the C library or another allocator
 *   version        dlvsym(RTLD_DEFAULT) with the version of the C library, which a hook has not
 *   next           dlsym(RTLD_NEXT) in a library that stands behind the hooks (-D LIBRARY)
 *   (none)         the functions themselves, and whether dlsym and dlerror answer as without a preloaded library
 * -D WRAPPER is a library to be preloaded: it puts a header before each block, and looks up the next functions with
 * RTLD_NEXT at the first call. A block that it did not hand out stops the program with the word DAMAGED. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *next_of(const char *name);

#ifdef LIBRARY
__attribute__((noinline)) void *next_of(const char *name) {
    void *volatile found = dlsym(RTLD_NEXT, name);
    return found;
}
#elif defined(WRAPPER)
#define MAGIC 0x77726170706572ull
struct head { uint64_t magic, size; };

static void *look_up(const char *name) {
    void *volatile found = dlsym(RTLD_NEXT, name);
    return found;
}

static struct head *head_of(void *p) {
    struct head *h = (struct head *)p - 1;
    if (h->magic != MAGIC) {
        static const char text[] = "DAMAGED: a block of another allocator\n";
        if (write(1, text, sizeof text - 1) < 0) _exit(4);
        _exit(3);
    }
    return h;
}

static unsigned long frees;
unsigned long wrapped(void);
unsigned long wrapped(void) { return frees; }

static void *take(size_t n) { /* the compiler would make malloc and memset a calloc */
    static void *(*next)(size_t);
    if (!next) next = (void *(*)(size_t))look_up("malloc");
    struct head *h = next(n + sizeof *h);
    if (!h) return 0;
    *h = (struct head){MAGIC, n};
    return h + 1;
}

void *malloc(size_t n) { return take(n); }

void free(void *p) {
    if (!p) return;
    struct head *h = head_of(p);
    static void (*next)(void *);
    static volatile int looks_up; /* dlsym has the attribute "leaf" */
    if (looks_up) return; /* dlsym frees the text of an earlier error */
    looks_up = 1;
    if (!next) next = (void (*)(void *))look_up("free");
    looks_up = 0;
    frees++;
    h->magic = 0;
    next(h);
}

void *calloc(size_t n, size_t m) {
    size_t bytes;
    if (__builtin_mul_overflow(n, m, &bytes)) return 0;
    void *p = take(bytes);
    return p ? memset(p, 0, bytes) : 0;
}

void *realloc(void *p, size_t n) {
    if (!p) return take(n);
    size_t size = head_of(p)->size;
    void *q = take(n);
    if (!q) return 0;
    memcpy(q, p, size < n ? size : n);
    free(p);
    return q;
}

size_t malloc_usable_size(void *p) { return p ? head_of(p)->size : 0; }
#else
static const size_t sizes[] = {1, 24, 600, 4096, 5000, 70000, 1 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes };

static long damaged;

static unsigned char *block(size_t n) {
    unsigned char *p = malloc(n);
    if (!p) abort();
    return memset(p, (int)(n % 251), n);
}

static void check(const unsigned char *p, size_t n, size_t mark) {
    for (size_t i = 0; i < n; i++) damaged += p[i] != mark % 251;
}

/* reallocarray and usable may be missing. */
struct family {
    void (*free)(void *);
    void *(*realloc)(void *, size_t);
    void *(*reallocarray)(void *, size_t, size_t);
    size_t (*usable)(void *);
};

static void use(struct family f) {
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < SIZES; i++) {
            size_t n = sizes[i];
            unsigned char *p = block(n);
            damaged += f.usable && f.usable(p) < n;
            errno = 77;
            f.free(p);
            damaged += errno != 77;
            p = f.realloc(block(n), 3 * n);
            check(p, n, n);
            memset(p, 1, 3 * n);
            p = realloc(p, 7 * n);
            check(p, 3 * n, 1);
            f.free(p);
            p = f.realloc(block(n), n / 2 + 1);
            check(p, n / 2 + 1, n);
            free(p);
            if (f.reallocarray) {
                p = f.reallocarray(block(n), 2, n);
                check(p, n, n);
                volatile size_t huge = SIZE_MAX / 2;
                damaged += f.reallocarray(p, huge, 3) != 0 || errno != ENOMEM;
                check(p, n, n);
                f.free(p);
            }
            /* What comes of 0 bytes is the allocator's decision; see also own_interface.c. */
            p = f.realloc(block(n), 0);
            if (p) f.free(p);
            f.free(f.realloc(0, n));
        }
    }
    f.free(0);
}

static struct family from(void *handle) {
    return (struct family){
        (void (*)(void *))dlsym(handle, "free"),
        (void *(*)(void *, size_t))dlsym(handle, "realloc"),
        (void *(*)(void *, size_t, size_t))dlsym(handle, "reallocarray"),
        (size_t (*)(void *))dlsym(handle, "malloc_usable_size"),
    };
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "file")) {
        void *handle = dlopen(argv[2], RTLD_LAZY | RTLD_NOLOAD);
        if (!handle) return puts(dlerror()), 1;
        use(from(handle));
    } else if (!strcmp(how, "version")) {
        const char *v = "GLIBC_2.2.5";
        struct family f = {
            (void (*)(void *))dlvsym(RTLD_DEFAULT, "free", v),
            (void *(*)(void *, size_t))dlvsym(RTLD_DEFAULT, "realloc", v),
            (void *(*)(void *, size_t, size_t))dlvsym(RTLD_DEFAULT, "reallocarray", "GLIBC_2.26"),
            (size_t (*)(void *))dlvsym(RTLD_DEFAULT, "malloc_usable_size", v),
        };
        use(f);
    } else if (!strcmp(how, "next")) {
        void *(*next)(const char *) = (void *(*)(const char *))dlsym(RTLD_DEFAULT, "next_of");
        struct family f = {
            (void (*)(void *))next("free"),
            (void *(*)(void *, size_t))next("realloc"),
            (void *(*)(void *, size_t, size_t))next("reallocarray"),
            (size_t (*)(void *))next("malloc_usable_size"),
        };
        use(f);
    } else {
        unsigned long (*wrapped)(void) = (unsigned long (*)(void))dlsym(RTLD_DEFAULT, "wrapped");
        printf("error %d, ", dlerror() != 0);
        printf("free is free %d, ", dlsym(RTLD_DEFAULT, "free") == (void *)free);
        printf("none %d, ", dlsym(RTLD_DEFAULT, "no_such_function") == 0 && dlerror() != 0 && dlerror() == 0);
        use((struct family){free, realloc, reallocarray, malloc_usable_size});
        printf("wrapped %d, ", wrapped && wrapped() > 0);
    }
    printf("damaged %ld\n", damaged);
    return 0;
}
#endif
