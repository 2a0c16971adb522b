/* What placing costs beside the system calls it is made of: matched_pair [bytes] [pairs] [rounds], to be run under the apply
 * preload with a rule for `matched`. Prints for each round the CPU nanoseconds of a placed malloc and free, and of mmap,
 * mbind and munmap of the same range made directly; placed and direct rounds take turns.
 * cc -O2 -o matched_pair matched_pair.c */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MPOL_INTERLEAVE = 3, MASK_NODES = 1024 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

__attribute__((noinline, noclone)) static void *matched(size_t n) {
    void *p = malloc(n);
    __asm__ volatile("" ::: "memory");
    return p;
}

static void direct(size_t n) {
    unsigned long mask[MASK_NODES / 64] = {1};
    void *p = (void *)syscall(SYS_mmap, 0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (syscall(SYS_mbind, p, n, MPOL_INTERLEAVE, mask, MASK_NODES + 1, 0)) exit(4);
    syscall(SYS_munmap, p, n);
}

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? strtoul(argv[1], 0, 10) : 1 << 20;
    long pairs = argc > 2 ? atol(argv[2]) : 2000, rounds = argc > 3 ? atol(argv[3]) : 15;
    void *p = matched(bytes);
    if ((uintptr_t)p % 4096) return fprintf(stderr, "not placed\n"), 3;
    free(p);
    for (long round = 0; round < rounds; round++) {
        double start = now();
        for (long i = 0; i < pairs; i++) free(matched(bytes));
        double middle = now();
        for (long i = 0; i < pairs; i++) direct(bytes);
        printf("%.1f %.1f\n", (middle - start) / pairs, (now() - middle) / pairs);
    }
    return 0;
}
