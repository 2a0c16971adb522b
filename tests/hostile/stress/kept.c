/* Arrays that are allocated and freed again and again.   kept faults|varying|several|passing|zero|grow|creep|threads|fork|limit|unused|attributes|doubles|odd
 *   faults   page faults of 10,000 rounds with three sizes
 *   varying  20,000 arrays of 64 KiB to 1 MiB, one at a time; writes to standard error: page faults and resident KiB at
 *            the peak
 *   several  the same with four at a time
 *   passing  20,000 arrays, each of which is 16 bytes larger and copied from the one before; writes the same
 *   zero     calloc after arrays full of ones
 *   grow     an array that grows by realloc; writes to standard error: resident KiB before, at the peak, after
 *   creep    an array that realloc makes larger by a page 8,192 times, then smaller; writes to standard error: seconds of
 *            CPU time
 *   threads  four threads that allocate and free arrays of the same sizes
 *   fork     as threads, while the process forks children that do the same
 *   limit    after arrays were freed, calls of every kind that need the address space which these may still take
 *   unused   arrays that are freed and not asked for any more, then 20,000 smaller ones; writes to standard error: the KiB
 *            that are resident less afterwards *   attributes  blocks of 32 MiB that are locked, made read-only and left out of forks before they are freed; writes to
 *            standard error: how many later ones are
 *   doubles  an array that realloc doubles up to 128 MiB, with 160 MiB of address space; writes to standard error: resident
 *            KiB at the peak and after it was freed
 *   odd      10,000 objects of a little more than a page; writes to standard error: resident KiB before, at the peak and
 *            after they were freed */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "status.h"

enum { THREADS = 4, CHILDREN = 40 };

static const size_t sizes[] = {8 << 10, 64 << 10, 1 << 20, 5000, 131072, 3 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes };

__attribute__((noinline)) static unsigned char *array(size_t n) {
    unsigned char *p = malloc(n);
    if (!p) exit(3);
    return p;
}

__attribute__((noinline)) static unsigned char *zeroed(size_t n) {
    unsigned char *p = calloc(n, 1);
    if (!p) exit(3);
    return p;
}

static void touch(unsigned char *p, size_t n, unsigned char mark) {
    for (size_t i = 0; i < n; i += 4096) p[i] = mark;
    p[n - 1] = mark;
}

static int holds(unsigned char *p, size_t n, unsigned char mark) {
    for (size_t i = 0; i < n; i += 4096)
        if (p[i] != mark) return 0;
    return p[n - 1] == mark;
}

static long faults_of(size_t n, int rounds) {
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < rounds; i++) {
        unsigned char *p = array(n);
        touch(p, n, i);
        free(p);
    }
    getrusage(RUSAGE_SELF, &after);
    return after.ru_minflt - before.ru_minflt;
}

static long faults(void) {
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    return now.ru_minflt;
}

static int varying(int live) {
    static unsigned char *held[4];
    static size_t size[4];
    int damaged = 0;
    unsigned random = 1;
    for (int i = 0; i < 20000; i++) {
        int k = i % live;
        if (held[k]) damaged |= !holds(held[k], size[k], k);
        free(held[k]);
        random = random * 1103515245 + 12345;
        size[k] = (64 << 10) + (random >> 8) % (960 << 10);
        touch(held[k] = array(size[k]), size[k], k);
    }
    for (int k = 0; k < live; k++) free(held[k]), held[k] = NULL;
    return damaged;
}

static int passing(void) {
    size_t n = 200000;
    unsigned char *old = array(n);
    memset(old, 1, n);
    for (int i = 0; i < 20000; i++) {
        unsigned char *next = array(n + 16);
        memcpy(next, old, n);
        memset(next + n, 1, 16);
        free(old);
        old = next;
        n += 16;
    }
    int damaged = !holds(old, n, 1);
    free(old);
    return damaged;
}

static int rounds(unsigned char mark, int count) {
    int damaged = 0;
    for (int i = 0; i < count; i++) {
        unsigned char *held[SIZES];
        for (int s = 0; s < SIZES; s++) touch(held[s] = (i + s) % 3 ? array(sizes[s]) : zeroed(sizes[s]), sizes[s], mark);
        for (int s = 0; s < SIZES; s++) {
            damaged |= !holds(held[s], sizes[s], mark);
            free(held[s]);
        }
    }
    return damaged;
}

static void *thread(void *arg) { return rounds(1 + (long)arg, 200) ? arg : NULL; }

static int zero(void) {
    int wrong = 0;
    for (int i = 0; i < 5; i++)
        for (int s = 0; s < SIZES; s++) {
            unsigned char *p = array(sizes[s]);
            memset(p, 0xff, sizes[s]);
            free(p);
            p = zeroed(sizes[s]);
            for (size_t at = 0; at < sizes[s]; at++) wrong += p[at] != 0;
            memset(p, 0xff, sizes[s]);
            free(p);
        }
    return wrong;
}

static void grow(void) {
    long before = status("VmRSS:");
    for (int i = 0; i < 3; i++) {
        unsigned char *p = NULL;
        for (size_t n = 4096; n < 24 << 20; n += 4096 + n / 8) {
            p = realloc(p, n);
            if (!p) exit(3);
            memset(p, 1, n);
        }
        free(p);
    }
    fprintf(stderr, "%ld %ld %ld\n", before, status("VmHWM:"), status("VmRSS:"));
}

/* Returns the KiB of address space in use while they existed. */
static long free_large(void) {
    long most = 0;
    for (int i = 0; i < 4; i++) {
        unsigned char *one = array(3 << 20), *two = array(3 << 20);
        touch(one, 3 << 20, i);
        touch(two, 3 << 20, i);
        most = status("VmSize:");
        free(one);
        free(two);
    }
    return most;
}

static void unused(void) {
    free_large();
    long before = status("VmRSS:");
    faults_of(192 << 10, 20000);
    fprintf(stderr, "%ld\n", before - status("VmRSS:"));
}

__attribute__((noinline)) static unsigned char *aligned(size_t n) {
    void *p = NULL;
    if (posix_memalign(&p, 4096, n)) exit(3);
    return p;
}

/* What the program did to a mapping, and whether the block that is there later has it. */
static int attributes(void) {
    enum { LARGE = 32 << 20, PART = 64 << 10 };
    int found = 0;
    for (int round = 0; round < 4; round++) {
        unsigned char *p = aligned(LARGE);
        int pipes[2];
        found += madvise(p, PART, MADV_DONTFORK) != 0 || pipe(pipes) || write(pipes[1], p, 1) != 1;
        found += read(pipes[0], p, 1) != 1; /* EFAULT where the memory is read-only */
        close(pipes[0]);
        close(pipes[1]);
        mlock(p, PART);
        mprotect(p, LARGE, PROT_READ);
        free(p);
    }
    found += status("VmLck:") != 0;
    unsigned char *p = aligned(LARGE);
    p[0] = 77;
    pid_t child = fork();
    if (!child) _exit(p[0] != 77);
    int ended = -1;
    waitpid(child, &ended, 0);
    found += ended != 0;
    free(p);
    fprintf(stderr, "%d\n", found);
    return 0;
}

__attribute__((noinline)) static unsigned char *larger(unsigned char *p, size_t n) {
    p = realloc(p, n);
    __asm__ volatile("" : : "r"(p) : "memory");
    return p;
}

/* Objects of 4,200 bytes; every second one is freed and allocated again. */
static int odd(void) {
    enum { COUNT = 10000, SIZE = 4200 };
    static unsigned char *held[COUNT];
    int damaged = 0;
    fprintf(stderr, "%ld ", status("VmRSS:"));
    for (int i = 0; i < COUNT; i++) memset(held[i] = array(SIZE), i, SIZE);
    for (int i = 0; i < COUNT; i += 2) {
        free(held[i]);
        memset(held[i] = array(SIZE), i, SIZE);
    }
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < SIZE; j++) damaged += held[i][j] != (unsigned char)i;
        free(held[i]);
    }
    fprintf(stderr, "%ld %ld\n", status("VmHWM:"), status("VmRSS:"));
    return damaged;
}

/* An array that doubles until two copies of it would not fit in the address space. */
static int doubles(void) {
    enum { FIRST = 1 << 20, LAST = 128 << 20 };
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    limit.rlim_cur = (rlim_t)(status("VmSize:") << 10) + LAST + LAST / 4;
    setrlimit(RLIMIT_AS, &limit);
    unsigned char *p = larger(NULL, FIRST);
    if (!p) return 1;
    size_t n = FIRST;
    for (size_t i = 0; i < n; i += 4096) p[i] = i >> 12;
    while (n < LAST) {
        p = larger(p, 2 * n);
        if (!p) return 2;
        for (size_t i = n; i < 2 * n; i += 4096) p[i] = i >> 12;
        n *= 2;
    }
    int damaged = 0;
    for (size_t i = 0; i < n; i += 4096) damaged += p[i] != (unsigned char)(i >> 12);
    free(p);
    fprintf(stderr, "%ld %ld\n", status("VmHWM:"), status("VmRSS:"));
    return damaged;
}

static void *nothing(void *arg) { return arg; }

/* Frees arrays, then leaves so little address space that what they took is needed. */
static void leave_little(void) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = (rlim_t)free_large() << 10;
    setrlimit(RLIMIT_AS, &limit);
}

static int refused(void) {
    enum { WANTED = 2 << 20, FLAGS = MAP_PRIVATE | MAP_ANONYMOUS };
    int bad = 0;
    leave_little();
    void *p = malloc(WANTED);
    bad |= !p;
    leave_little();
    void *q = calloc(WANTED, 1);
    bad |= !q << 1;
    leave_little();
    bad |= !(p = realloc(p, 2 * WANTED)) << 2;
    leave_little();
    void *aligned = NULL;
    bad |= (posix_memalign(&aligned, 64, WANTED) != 0) << 3;
    leave_little();
    void *map = mmap(NULL, WANTED, PROT_READ | PROT_WRITE, FLAGS, -1, 0);
    bad |= (map == MAP_FAILED) << 4;
    leave_little();
    bad |= (map == MAP_FAILED || mremap(map, WANTED, 2 * WANTED, MREMAP_MAYMOVE) == MAP_FAILED) << 5;
    leave_little();
    pthread_attr_t attr;
    pthread_t t;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, WANTED);
    int error = pthread_create(&t, &attr, nothing, NULL);
    bad |= (error != 0) << 6;
    if (!error) pthread_join(t, NULL);
    free(p), free(q), free(aligned);
    return bad;
}

/* Each page holds its number, and must do so until it is cut off. */
static int creep(void) {
    struct rusage spent;
    int damaged = 0;
    unsigned *p = NULL;
    for (unsigned pages = 1; pages <= 8192; pages++) {
        p = realloc(p, pages * 4096UL);
        if (!p) exit(3);
        p[(pages - 1) * 1024UL] = pages;
        damaged += p[pages / 2 * 1024UL] != pages / 2 + 1 && pages > 1;
    }
    for (unsigned pages = 8192; pages > 0; pages /= 2) {
        p = realloc(p, pages * 4096UL);
        if (!p) exit(3);
        for (unsigned i = 0; i < pages; i++) damaged += p[i * 1024UL] != i + 1;
    }
    free(p);
    getrusage(RUSAGE_SELF, &spent);
    fprintf(stderr, "%.2f\n", spent.ru_utime.tv_sec + spent.ru_stime.tv_sec + (spent.ru_utime.tv_usec + spent.ru_stime.tv_usec) / 1e6);
    return damaged;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "faults";
    pthread_t threads[THREADS];
    int damaged = 0, forks = !strcmp(how, "fork");
    if (!strcmp(how, "faults")) {
        long all = faults_of(8 << 10, 5000) + faults_of(64 << 10, 4800) + faults_of(1 << 20, 200);
        fprintf(stderr, "%ld\n", all);
    }
    int live = !strcmp(how, "varying") ? 1 : !strcmp(how, "several") ? 4 : 0;
    if (live || !strcmp(how, "passing")) {
        long before = faults();
        damaged = live ? varying(live) : passing();
        fprintf(stderr, "%ld %ld\n", faults() - before, status("VmHWM:"));
    }
    if (!strcmp(how, "zero")) damaged = zero();
    if (!strcmp(how, "grow")) grow();
    if (!strcmp(how, "creep")) damaged = creep();
    if (!strcmp(how, "unused")) unused();
    if (!strcmp(how, "attributes")) damaged = attributes();
    if (!strcmp(how, "doubles")) damaged = doubles();
    if (!strcmp(how, "odd")) damaged = odd();
    if (!strcmp(how, "limit")) damaged = refused();
    if (forks || !strcmp(how, "threads")) {
        for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, thread, (void *)i);
        for (int i = 0; forks && i < CHILDREN; i++) {
            pid_t child = fork();
            if (!child) {
                alarm(20);
                _exit(rounds(99, 3));
            }
            int ended = -1;
            waitpid(child, &ended, 0);
            damaged |= ended != 0;
        }
        for (int i = 0; i < THREADS; i++) {
            void *found = threads;
            pthread_join(threads[i], &found);
            damaged |= found != NULL;
        }
    }
    printf("damaged %d\n", damaged);
    return 0;
}
