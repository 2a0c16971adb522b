/* Arrays that are allocated and freed again and again.   kept faults|zero|grow|creep|threads|fork|limit|unused
 *   faults   page faults of 10,000 rounds with three sizes
 *   zero     calloc after arrays full of ones
 *   grow     an array that grows by realloc; writes to standard error: resident KiB before, at the peak, after
 *   creep    an array that realloc makes larger by a page 8,192 times, then smaller; writes to standard error: seconds of
 *            CPU time
 *   threads  four threads that allocate and free arrays of the same sizes
 *   fork     as threads, while the process forks children that do the same
 *   limit    after arrays were freed, calls of every kind that need the address space which these may still take
 *   unused   arrays that are freed and not asked for any more, then 20,000 smaller ones; writes to standard error: the KiB
 *            that are resident less afterwards */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

static long status(const char *key) {
    char line[256];
    long value = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) value = atol(line + strlen(key));
    if (f) fclose(f);
    return value;
}

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
    faults_of(8 << 10, 20000);
    fprintf(stderr, "%ld\n", before - status("VmRSS:"));
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
    if (!strcmp(how, "zero")) damaged = zero();
    if (!strcmp(how, "grow")) grow();
    if (!strcmp(how, "creep")) damaged = creep();
    if (!strcmp(how, "unused")) unused();
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
