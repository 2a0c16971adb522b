/* Blocks whose size realloc changes.   resized cut|cut-odd|steps|turns|large|first|strings|locked|data|threads|shrunk
 *   cut      a block of 192 MiB that becomes smaller by steps, with 64 MiB of address space beside it; writes to standard
 *            error: resident KiB at the peak, and after the block was made as small as 1 MiB
 *   cut-odd  blocks that are aligned, locked, protected and shared with a child before they become smaller
 *   steps    an array that grows by 1 MiB up to 160 MiB, with 36 MiB of address space beside it; writes to standard error:
 *            resident KiB at the peak
 *   turns    as steps, in two functions by turns
 *   large    as steps, of 40, 100 and 160 MiB
 *   first    a block of 128 MiB that realloc makes larger in another function; writes as steps, without a limit
 *   strings  2,000 strings that grow by 16 bytes up to 12,000, four by turns; writes to standard error: how often one
 *            of them was moved
 *   locked   arrays of 4 MiB that are locked and grow to more than the process may lock; writes to standard error: KiB
 *            of address space that are more after the last than after the third
 *   data     arrays that do not grow for want of data (RLIMIT_DATA); writes the same
 *   threads  four threads that make blocks larger and smaller and free each other's
 *   shrunk   buffers of 16,000 bytes that are cut to a little more than half; writes to standard error: resident KiB at
 *            the peak */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "status.h"

#define MIB ((size_t)1 << 20)
#define PAGE 4096

/* noipa: the compiler sees neither that realloc may return what it got nor that two functions are alike. */
__attribute__((noipa)) static void *made(size_t n) { return malloc(n); }
__attribute__((noipa)) static void *first(size_t n) { return malloc(n); }
__attribute__((noipa)) static void *larger(void *p, size_t n) { return realloc(p, n); }
__attribute__((noipa)) static void *also_larger(void *p, size_t n) { return realloc(p, n); }
__attribute__((noipa)) static void *smaller(void *p, size_t n) { return realloc(p, n); }

__attribute__((noipa)) static void *aligned(size_t align, size_t n) {
    void *p = NULL;
    return posix_memalign(&p, align, n) ? NULL : p;
}

static void limit(size_t bytes) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    limit.rlim_cur = ((rlim_t)status("VmSize:") << 10) + bytes;
    setrlimit(RLIMIT_AS, &limit);
}

/* Each page holds its number. */
static void number(char *p, size_t from, size_t to) {
    for (size_t i = from; i < to; i += PAGE) *(size_t *)(p + i) = i / PAGE;
}

static int damaged(const char *p, size_t n) {
    int wrong = 0;
    for (size_t i = 0; i + PAGE <= n; i += PAGE) wrong += *(const size_t *)(p + i) != i / PAGE;
    return wrong;
}

static int cut(void) {
    static const size_t steps[] = {190 * MIB, 144 * MIB + 5, 64 * MIB, 5 * MIB + 4097, MIB};
    limit(256 * MIB);
    char *p = made(192 * MIB);
    if (!p) return 1;
    number(p, 0, 192 * MIB);
    int wrong = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        errno = 77;
        p = smaller(p, steps[i]);
        size_t usable = malloc_usable_size(p);
        wrong += !p || usable < steps[i] || usable > steps[i] + PAGE || errno != 77 || damaged(p, steps[i]);
    }
    long peak = status("VmHWM:"), rest = status("VmRSS:");
    p = smaller(p, 100);
    wrong += !p || *(size_t *)p != 0;
    p = larger(p, 3 * MIB);
    wrong += !p || *(size_t *)p != 0;
    free(p);
    fprintf(stderr, "%ld %ld\n", peak, rest);
    return wrong;
}

static int cut_odd(void) {
    int wrong = 0;
    for (int how = 0; how < 4; how++) {
        char *p = aligned(2 * MIB, 8 * MIB);
        if (!p) return 1;
        number(p, 0, 8 * MIB);
        if (how == 0) mlock(p + 5 * MIB, 64 << 10);
        if (how == 1) mprotect(p + 5 * MIB, MIB, PROT_READ);
        if (how == 2) mprotect(p + 2 * MIB, MIB, PROT_READ);
        pid_t child = how == 3 ? fork() : -1;
        p = smaller(p, 4 * MIB);
        wrong += !p || damaged(p, 4 * MIB);
        p = larger(p, 12 * MIB);
        wrong += !p || damaged(p, 4 * MIB);
        memset(p + 4 * MIB, how, 8 * MIB);
        p = smaller(p, 3 * MIB);
        wrong += !p || damaged(p, 3 * MIB);
        free(p);
        if (child == 0) _exit(wrong != 0);
        int ended = -1;
        wrong += child > 0 && (waitpid(child, &ended, 0) != child || ended != 0);
    }
    wrong += status("VmLck:") != 0;
    return wrong;
}

static int grow(int turns, size_t first, size_t step) {
    enum { LAST = 160 };
    limit((LAST + 36) * MIB);
    char *p = NULL;
    for (size_t n = first; n <= LAST; n += step) {
        p = turns && n % 2 ? also_larger(p, n * MIB) : larger(p, n * MIB);
        if (!p) return fprintf(stderr, "NULL at %zu MiB\n", n);
        number(p, n > first ? (n - step) * MIB : 0, n * MIB);
    }
    int wrong = damaged(p, LAST * MIB);
    fprintf(stderr, "%ld\n", status("VmHWM:"));
    free(p);
    return wrong;
}

static int from_elsewhere(void) {
    char *p = first(128 * MIB);
    if (!p) return 1;
    number(p, 0, 128 * MIB);
    p = larger(p, 136 * MIB);
    if (!p) return 2;
    number(p, 128 * MIB, 136 * MIB);
    int wrong = damaged(p, 136 * MIB);
    fprintf(stderr, "%ld\n", status("VmHWM:"));
    free(p);
    return wrong;
}

static int strings(void) {
    enum { STRINGS = 2000, TURNS = 4, STEP = 16, LENGTH = 12000 };
    static char *all[STRINGS];
    long moved = 0;
    int wrong = 0;
    for (int s = 0; s < STRINGS; s += TURNS)
        for (int n = STEP; n <= LENGTH; n += STEP)
            for (int t = s; t < s + TURNS; t++) {
                uintptr_t before = (uintptr_t)all[t];
                if (!(all[t] = larger(all[t], n))) return 1;
                moved += (uintptr_t)all[t] != before;
                memset(all[t] + n - STEP, t + n / STEP, STEP);
            }
    for (int s = 0; s < STRINGS; s++) {
        for (int n = 0; n < LENGTH; n++) wrong += all[s][n] != (char)(s + n / STEP + 1);
        free(all[s]);
    }
    fprintf(stderr, "%ld\n", moved);
    return wrong;
}

enum { THREADS = 4, SLOTS = 16, ROUNDS = 3000 };
static _Atomic(size_t *) slots[SLOTS];

/* The first word of a block is its size, and so is the last one. */
static size_t *sized(size_t *p, size_t n) {
    n &= ~(size_t)7;
    p = (n & 64 ? larger : smaller)(p, n);
    if (!p) exit(3);
    p[0] = n;
    p[n / 8 - 1] = n;
    return p;
}

static void *resizes(void *arg) {
    unsigned seed = (unsigned)(uintptr_t)arg + 1;
    long wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        /* Whoever takes a block out of its slot has it alone. */
        size_t *p = atomic_exchange(&slots[rand_r(&seed) % SLOTS], NULL);
        if (p) wrong += p[p[0] / 8 - 1] != p[0] || malloc_usable_size(p) < p[0];
        size_t n = (size_t)16 << rand_r(&seed) % 19;
        p = sized(p, n + rand_r(&seed) % n);
        free(atomic_exchange(&slots[rand_r(&seed) % SLOTS], p));
    }
    return (void *)wrong;
}

static int threads(void) {
    pthread_t all[THREADS];
    int wrong = 0;
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&all[i], NULL, resizes, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        void *found = all;
        pthread_join(all[i], &found);
        wrong += found != NULL;
    }
    for (int i = 0; i < SLOTS; i++) free(slots[i]);
    return wrong;
}

/* Root may lock without a limit. */
static void limit_locks(rlim_t bytes) {
    struct { unsigned version; int pid; } head = {0x20080522, 0};
    struct { unsigned effective, permitted, inheritable; } data[2];
    struct rlimit limit = {bytes, bytes};
    if (!syscall(SYS_capget, &head, data)) {
        data[0].effective &= ~(1u << 14);
        syscall(SYS_capset, &head, data);
    }
    setrlimit(RLIMIT_MEMLOCK, &limit);
}

static int refused(int locked) {
    long before = 0;
    int wrong = 0;
    struct rlimit may = {(size_t)status("VmData:") * 1024 + 24 * MIB, RLIM_INFINITY};
    if (locked) limit_locks(8 * MIB);
    else setrlimit(RLIMIT_DATA, &may);
    for (int i = 0; i < 24; i++) {
        size_t large = locked ? 16 * MIB : 64 * MIB;
        char *p = made(4 * MIB);
        memset(p, 1, 4 * MIB);
        if (locked && mlock(p, 4 * MIB)) return 1;
        char *q = larger(p, large);
        if (locked ? !q : q != NULL) return 1;
        if (!q) q = p;
        wrong += q[3 * MIB] != 1;
        munlock(q, 4 * MIB);
        free(q);
        if (i == 2) before = status("VmSize:");
    }
    fprintf(stderr, "%ld\n", status("VmSize:") - before);
    return wrong;
}

static int shrunk(void) {
    enum { BUFFERS = 6000, READ = 16000, KEPT = 8100 };
    static char *buffers[BUFFERS];
    int wrong = 0;
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i] = made(READ);
        memset(buffers[i], i, READ);
        buffers[i] = larger(buffers[i], KEPT);
    }
    for (int i = 0; i < BUFFERS; i++) wrong += buffers[i][KEPT - 1] != (char)i;
    fprintf(stderr, "%ld\n", status("VmHWM:"));
    return wrong;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "cut";
    int wrong = 1;
    if (!strcmp(how, "cut")) wrong = cut();
    if (!strcmp(how, "cut-odd")) wrong = cut_odd();
    if (!strcmp(how, "steps")) wrong = grow(0, 1, 1);
    if (!strcmp(how, "turns")) wrong = grow(1, 1, 1);
    if (!strcmp(how, "large")) wrong = grow(0, 40, 60);
    if (!strcmp(how, "first")) wrong = from_elsewhere();
    if (!strcmp(how, "strings")) wrong = strings();
    if (!strcmp(how, "locked")) wrong = refused(1);
    if (!strcmp(how, "data")) wrong = refused(0);
    if (!strcmp(how, "threads")) wrong = threads();
    if (!strcmp(how, "shrunk")) wrong = shrunk();
    printf("damaged %d\n", wrong);
    return 0;
}
