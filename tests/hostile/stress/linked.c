/* Threads that allocate by each function of the family, free what others allocated, and check what they have. For an
   allocator that is linked to the program statically: says whether the functions are the program's own. With an
   argument nothing that the C library allocated is freed or resized, nor is its reallocarray called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, SLOTS = 256, STEPS = 40000 };

struct slot {
    pthread_mutex_t lock;
    unsigned char *p;
    size_t size;
    unsigned char fill;
};
static struct slot slots[SLOTS];
static long damaged;
static int is_of_libc;

static unsigned next(unsigned *state) { return *state = *state * 1664525 + 1013904223, *state >> 8; }

static void check(struct slot *s) {
    long bad = malloc_usable_size(s->p) < s->size;
    for (size_t i = 0; i < s->size; i += 1 + s->size / 64) bad += s->p[i] != s->fill;
    if (bad) __atomic_fetch_add(&damaged, bad, __ATOMIC_RELAXED);
}

static void *allocate(unsigned how, size_t n) {
    void *p = 0;
    switch (how % 8) {
    case 0: return calloc(n / 8 + 1, 8);
    case 1: return posix_memalign(&p, 4096, n) ? 0 : p;
    case 2: return aligned_alloc(64, (n + 63) & ~(size_t)63);
    case 3: return memalign(256, n);
    case 4: return valloc(n);
    case 5: return is_of_libc ? reallocarray(0, n / 4 + 1, 4) : malloc(n);
    case 6: return realloc(0, n);
    default: return malloc(n);
    }
}

static void *work(void *arg) {
    unsigned state = (unsigned)(long)arg + 1;
    for (int i = 0; i < STEPS; i++) {
        struct slot *s = &slots[next(&state) % SLOTS];
        unsigned r = next(&state);
        size_t n = r % 97 == 0 ? 300000 + r % 500000 : r % 5 == 0 ? r % 60000 : r % 900;
        pthread_mutex_lock(&s->lock);
        if (s->p) check(s);
        if (s->p && r % 3 == 0) {
            size_t both = n < s->size ? n : s->size;
            s->p = r % 2 || !is_of_libc ? realloc(s->p, n + 1) : reallocarray(s->p, n + 1, 1);
            s->size = both;
            check(s);
            s->size = n + 1;
        } else {
            free(s->p);
            s->p = allocate(r / 3, n + 1), s->size = n + 1;
        }
        if (!s->p) abort();
        s->fill = r;
        memset(s->p, s->fill, s->size);
        pthread_mutex_unlock(&s->lock);
    }
    return 0;
}

/* What the C library allocates is freed by the program's own function. */
static void of_libc(void) {
    char *line = 0, *text = 0;
    size_t room = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && getline(&line, &room, f) > 0) free(strdup(line));
    if (f) fclose(f);
    if (asprintf(&text, "%s %d", line, 5) < 0) abort();
    free(line), free(text);
    free(realpath(".", 0));
    free(getcwd(0, 0));
}

int main(int argc, char **argv) {
    (void)argv;
    is_of_libc = argc < 2;
    pthread_t t[THREADS];
    for (int i = 0; i < SLOTS; i++) pthread_mutex_init(&slots[i].lock, 0);
    for (long i = 0; i < THREADS; i++) pthread_create(&t[i], 0, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], 0);
    for (int i = 0; i < 1000 && is_of_libc; i++) of_libc();
    for (int i = 0; i < SLOTS; i++) free(slots[i].p);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 1000; i++) free(malloc(i * 100));
        _exit(0);
    }
    Dl_info here, there;
    int is_known = dladdr((void *)main, &here) && dladdr((void *)(uintptr_t)malloc, &there);
    int is_own = is_known && here.dli_fbase == there.dli_fbase;
    printf("malloc is the program's %d, damaged %ld\n", is_own, damaged);
    return 0;
}
