/* What placing costs beside the system calls it is made of: matched_pair [bytes] [pairs] [rounds], to be run under the apply
 * preload with a rule for `matched`. Prints for each round the CPU nanoseconds
 * - of a placed malloc and free where many objects are live, so that memory which was freed cannot serve them;
 * - of mmap, mbind and munmap of the same range, made directly;
 * - of a placed malloc and free again and again;
 * - of malloc and free that are not placed, again and again.
 * cc -O2 -o matched_pair matched_pair.c */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MPOL_INTERLEAVE = 3, MASK_NODES = 1024, LIVE = 64, MOST = 256 << 20 };

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

__attribute__((noinline, noclone)) static void *unmatched(size_t n) {
    void *p = malloc(n);
    __asm__ volatile("nop" ::: "memory");
    return p;
}

static void *direct(size_t n) {
    unsigned long mask[MASK_NODES / 64] = {1};
    void *p = (void *)syscall(SYS_mmap, 0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (syscall(SYS_mbind, p, n, MPOL_INTERLEAVE, mask, MASK_NODES + 1, 0)) exit(4);
    return p;
}

static void unmap(void *p, size_t n) { syscall(SYS_munmap, p, n); }
static void release(void *p, size_t n) { (void)n, free(p); }

/* Nanoseconds of a pair with `live` objects at a time. */
static double pair(void *(*make)(size_t), void (*end)(void *, size_t), size_t n, long pairs, long live) {
    void *p[LIVE];
    long done = 0;
    double start = now();
    for (; done < pairs; done += live) {
        for (long i = 0; i < live; i++) p[i] = make(n);
        for (long i = 0; i < live; i++) end(p[i], n);
    }
    return (now() - start) / done;
}

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? strtoul(argv[1], 0, 10) : 1 << 20;
    long pairs = argc > 2 ? atol(argv[2]) : 2000, rounds = argc > 3 ? atol(argv[3]) : 15;
    void *p = matched(bytes);
    int mode = 0;
    *(char *)p = 1;
    /* 2 is MPOL_F_ADDR: the policy of the page. */
    if (syscall(SYS_get_mempolicy, &mode, NULL, 0, p, 2) || mode != MPOL_INTERLEAVE)
        return fprintf(stderr, "not placed\n"), 3;
    free(p);
    long live = MOST / bytes < LIVE ? MOST / bytes : LIVE;
    for (int i = 0; i < 3; i++) free(matched(bytes)), free(unmatched(bytes));
    for (long round = 0; round < rounds; round++)
        printf("%.1f %.1f %.1f %.1f\n", pair(matched, release, bytes, pairs, live), pair(direct, unmap, bytes, pairs, live),
               pair(matched, release, bytes, pairs, 1), pair(unmatched, release, bytes, pairs, 1));
    return 0;
}
