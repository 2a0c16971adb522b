/* Memory that comes and goes more often than the library can keep it.   turns MODE
 *   arrays    12,000 times one of three call sites allocates 400 KB, writes and frees it, in turn
 *   large     1,200 times one of three call sites allocates 8 MB, in 1 GB of address space (RLIMIT_AS)
 *   sizes     12,000 times one call site allocates 150 to 225 KB, each time another size
 *   cache     60 arrays of 150 to 450 KB stay, and 15,000 times one of them is replaced by another
 *   buffers   16 threads, in which each of 80 call sites in turn allocates 15 to 45 KB, 200 times
 *   pinned    300 times 64 arrays of 300 KB that are freed together, and a small block that stays
 *   after     an array of 20 MB of one call site, then 50 times 60 of 300 KB of another one that are freed together
 *   elsewhere 50 times two arrays of 15 MB of one call site, then 30 of 1 MB of another one that stay
 * Writes: page faults, for `elsewhere` the most memory, KiB. Figures are written to standard error. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "sites.h"

enum { THREADS = 16 };
static int damaged;

static long faults(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
}

static void brief(int site, size_t size, unsigned char mark) {
    unsigned char *p = sites[site](size);
    if (!p) exit(3);
    memset(p, mark, size);
    if (p[0] != mark || p[size / 2] != mark || p[size - 1] != mark) damaged = 1;
    free(p);
}

static void cache(void) {
    static unsigned char *blocks[60];
    unsigned random = 1;
    for (int i = 0; i < 15000; i++) {
        random = random * 1664525 + 1013904223;
        unsigned char **block = &blocks[(random >> 16) % 60];
        size_t size = 150000 + (size_t)i * 7919 % 300000;
        free(*block);
        if (!(*block = sites[0](size))) exit(3);
        memset(*block, i, size);
    }
    for (int i = 0; i < 60; i++) free(blocks[i]);
}

static void pinned(void) {
    unsigned char *held[64];
    void *list = NULL;
    for (int step = 0; step < 300; step++) {
        for (int i = 0; i < 64; i++) memset(held[i] = sites[0](300000), step, 300000);
        void **record = malloc(56);
        *record = list, list = record;
        for (int i = 0; i < 64; i++) damaged |= held[i][299999] != (unsigned char)step, free(held[i]);
    }
    for (void *next; list; list = next) next = *(void **)list, free(list);
}

static void after(void) {
    unsigned char *held[60];
    brief(0, 20000000, 1);
    for (int step = 0; step < 50; step++) {
        for (int i = 0; i < 60; i++) memset(held[i] = sites[1](300000), step, 300000);
        for (int i = 0; i < 60; i++) damaged |= held[i][299999] != step, free(held[i]);
    }
}

static long elsewhere(void) {
    unsigned char *held[30];
    struct rusage used;
    for (int i = 0; i < 50; i++) {
        held[0] = sites[0](15000000), held[1] = sites[0](15000000);
        memset(held[0], i, 15000000), memset(held[1], i, 15000000);
        free(held[0]), free(held[1]);
    }
    for (int i = 0; i < 30; i++) memset(held[i] = sites[1](1000000), i, 1000000);
    getrusage(RUSAGE_SELF, &used);
    for (int i = 0; i < 30; i++) damaged |= held[i][999999] != i, free(held[i]);
    return used.ru_maxrss;
}

static void *thread(void *arg) {
    for (int round = 0; round < 200; round++)
        for (int site = 0; site < 80; site++)
            brief(site, 15000 + (size_t)(round * 37 + site * 101 + (long)arg) % 30000, (unsigned char)site);
    return NULL;
}

static void buffers(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, thread, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    long before = faults();
    if (!strcmp(how, "arrays"))
        for (int i = 0; i < 12000; i++) brief(i % 3, 400000, (unsigned char)i);
    if (!strcmp(how, "large")) {
        struct rlimit limit = {1ul << 30, 1ul << 30};
        setrlimit(RLIMIT_AS, &limit);
        for (int i = 0; i < 1200; i++) brief(i % 3, 8000000, (unsigned char)i);
    }
    if (!strcmp(how, "sizes"))
        for (int i = 0; i < 12000; i++) brief(0, 150000 + (size_t)i * 7919 % 75000, (unsigned char)i);
    if (!strcmp(how, "cache")) cache();
    if (!strcmp(how, "pinned")) pinned();
    if (!strcmp(how, "after")) after();
    if (!strcmp(how, "buffers")) buffers();
    fprintf(stderr, "%ld\n", !strcmp(how, "elsewhere") ? elsewhere() : faults() - before);
    printf("damaged %d\n", damaged);
    return 0;
}
