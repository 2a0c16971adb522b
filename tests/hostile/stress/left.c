/* Allocations that rules leave to the program's allocator.   left MODE
 *   place     writes how many of a block of 64 bytes, one of 64 KB and one of 1 MB begin at a page: those are placed
 *   pairs     2,000,000 times one call site allocates and frees 64 bytes: writes the CPU time, us
 *   changed   an array of 1 MB of one call site, which another one makes larger to 3 MB: as in place */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

__attribute__((noinline)) static void *block(size_t size) {
    void *p = malloc(size);
    if (!p) exit(3);
    memset(p, 1, size);
    return p;
}

__attribute__((noinline)) static void *larger(void *p, size_t size) {
    p = realloc(p, size);
    if (!p) exit(3);
    return p;
}

__attribute__((noinline)) static void *pair(size_t size) {
    void *p = malloc(size);
    __asm__ volatile("" : : "r"(p) : "memory");
    return p;
}

static int begins_at_a_page(const void *p) { return (uintptr_t)p % 4096 == 0; }

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    long number = 0;
    int damaged = 0;
    if (!strcmp(how, "place")) {
        void *all[] = {block(64), block(64 << 10), block(1 << 20)};
        for (int i = 0; i < 3; i++) number += begins_at_a_page(all[i]), free(all[i]);
    }
    if (!strcmp(how, "changed")) {
        unsigned char *p = larger(block(1 << 20), 3 << 20);
        number = begins_at_a_page(p);
        for (int i = 0; i < 1 << 20; i++) damaged |= p[i] != 1;
        free(p);
    }
    if (!strcmp(how, "pairs")) {
        for (int i = 0; i < 2000000; i++) free(pair(64));
        struct rusage used;
        getrusage(RUSAGE_SELF, &used);
        number = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    }
    fprintf(stderr, "%ld\n", number);
    printf("damaged %d\n", damaged);
    return 0;
}
