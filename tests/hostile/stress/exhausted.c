/* A program whose memory ends.
 *   exhausted all LIBRARY    calls everything that a preload may hook once, and says what it found
 *   exhausted fill LIBRARY   first uses up its address space, then allocates at 200 call sites, loads and unloads
 *                            libraries, gives some memory back and allocates again */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int damaged;

static void check(char *p, size_t n) {
    for (size_t i = 0; i < n; i += 4096) p[i] = (char)n;
    for (size_t i = 0; i < n; i += 4096) damaged += p[i] != (char)n;
}

/* 200 functions that allocate, each with a size of its own. */
#define SITE(n) __attribute__((noinline)) static char *site_##n(void) { return malloc((n % 2 ? 100 : 4000) + n); }
#define TEN(x, n) x(n##0) x(n##1) x(n##2) x(n##3) x(n##4) x(n##5) x(n##6) x(n##7) x(n##8) x(n##9)
#define HUNDRED(x, n) TEN(x, n##0) TEN(x, n##1) TEN(x, n##2) TEN(x, n##3) TEN(x, n##4) TEN(x, n##5) TEN(x, n##6) \
    TEN(x, n##7) TEN(x, n##8) TEN(x, n##9)
HUNDRED(SITE, 1) HUNDRED(SITE, 2)
#define NAME(n) site_##n,
static char *(*const sites[])(void) = {HUNDRED(NAME, 1) HUNDRED(NAME, 2)};

static int all_sites(void) {
    int got = 0;
    for (int i = 0; i < 200; i++) {
        char *p = sites[i]();
        if (!p) continue;
        check(p, 100);
        free(p);
        got++;
    }
    return got;
}

static void *in_thread(void *p) {
    char *q = malloc(70000);
    if (q) check(q, 70000);
    free(q);
    return p;
}

static void every_call(const char *library) {
    char *small = malloc(100), *cleared = calloc(1, 200000);
    char *aligned = memalign(8192, 100000), *large = malloc(5 << 20);
    char *mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!small || !cleared || !aligned || !large || mapped == MAP_FAILED) { damaged++; return; }
    check(small, 100), check(cleared, 200000), check(aligned, 100000), check(large, 5 << 20), check(mapped, 1 << 20);
    small = realloc(small, 9000), large = realloc(large, 6 << 20);
    mapped = mremap(mapped, 1 << 20, 2 << 20, MREMAP_MAYMOVE);
    damaged += large[0] != (char)(5 << 20) || mapped[4096] != (char)(1 << 20);
    free(small), free(cleared), free(aligned), free(large);
    munmap(mapped, 2 << 20);
    for (int i = 0; i < 2; i++) {
        void *handle = dlopen(i ? "libutil.so.1" : library, RTLD_NOW);
        char *(*make)(size_t) = handle ? (char *(*)(size_t))dlsym(handle, "plugin_make") : NULL;
        char *p = make ? make(20000) : NULL;
        if (p) check(p, 20000);
        free(p);
        if (!handle || dlclose(handle)) damaged++;
    }
    pthread_t t;
    if (pthread_create(&t, NULL, in_thread, NULL) || pthread_join(t, NULL)) damaged++;
    int child = fork(), status = 0;
    if (!child) _exit(all_sites() / 2);
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 100) damaged++;
}

/* Uses up the address space that is allowed, down to single pages, and returns one large part of it. */
static void *fill(void) {
    struct rlimit limit = {0, RLIM_INFINITY};
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%zu", &pages) != 1 || fclose(f)) exit(2);
    limit.rlim_cur = pages * 4096 + (48 << 20);
    if (setrlimit(RLIMIT_AS, &limit)) exit(3);
    void *part = mmap(NULL, 32 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t n = 1 << 24; n >= 4096; n /= 2)
        while (mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) {}
    while (malloc(200000)) {}
    return part;
}

int main(int argc, char **argv) {
    if (argc != 3) return 9;
    if (!strcmp(argv[1], "all")) {
        every_call(argv[2]);
        int got = all_sites();
        printf("sites %d damaged %d\n", got, damaged);
        return 0;
    }
    void *part = fill();
    all_sites();
    for (int i = 0; i < 20; i++) {
        void *handle = dlopen(argv[2], RTLD_NOW);
        all_sites();
        if (handle) dlclose(handle);
        free(malloc(1 << 20));
    }
    errno = 0;
    char *refused = malloc(100 << 20);
    printf("refused %d %d\n", !refused, errno == ENOMEM);
    munmap(part, 32 << 20);
    every_call(argv[2]);
    int got = all_sites();
    printf("sites %d damaged %d\n", got, damaged);
    return 0;
}
