/* Leaves calls of the mmap family by siglongjmp.   jumps MODE
 *   calls     a signal handler leaves what it interrupted about 4,000 times, while the program maps, moves and unmaps areas:
 *             writes how many calls of the mmap family came to their end
 *   beside N  N areas of two pages stay mapped: CPU time of 20,000 pairs of mmap and munmap of another page, us */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>

enum { PAGE = 4096, PAGES = 8, JUMPS = 4000, SLOTS = 64 };

static sigjmp_buf out;
static volatile sig_atomic_t jumps, armed;
static void *volatile area[SLOTS]; /* what is mapped, as far as a call has returned */
static volatile long calls;
static long damaged;

static void jump(int number) {
    (void)number;
    if (!armed) return;
    jumps++;
    siglongjmp(out, 1);
}

static inline __attribute__((always_inline)) void *map(size_t n) {
    return mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

__attribute__((noinline)) static void *matched(size_t n) {
    void *p = map(n);
    __asm__ volatile("" ::: "memory");
    return p;
}

__attribute__((noinline)) static void *other(size_t n) {
    void *p = map(n);
    __asm__ volatile("" ::: "memory");
    return p;
}

/* Each call that returns is counted; what a jump leaves mapped stays so. */
static void round_of(int i) {
    volatile int slot = i % SLOTS;
    if (area[slot]) {
        void *old = area[slot];
        area[slot] = 0;
        damaged += munmap(old, PAGES * PAGE) != 0, calls++;
    }
    char *p = i % 3 ? matched(PAGES * PAGE) : other(PAGES * PAGE);
    calls++;
    if (p == MAP_FAILED) exit(3);
    p[0] = 1;
    void *q = mremap(p, PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE);
    calls++;
    if (q == MAP_FAILED) exit(4);
    damaged += *(char *)q != 1;
    damaged += munmap((char *)q + PAGES * PAGE, PAGES * PAGE) != 0, calls++;
    area[slot] = q;
}

static void storm(void) {
    struct sigaction action = {.sa_handler = jump};
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    volatile int i = 0;
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &often, 0);
    sigsetjmp(out, 1);
    armed = 1;
    while (jumps < JUMPS) round_of(i), i++;
    armed = 0;
    setitimer(ITIMER_REAL, &never, 0);
}

static long cpu_us(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    long number = 0;
    if (!strcmp(how, "calls")) storm(), number = calls;
    if (!strncmp(how, "beside ", 7)) {
        for (int i = atoi(how + 7); i > 0; i--)
            if (matched(2 * PAGE) == MAP_FAILED || other(PAGE) == MAP_FAILED) return 3;
        long before = cpu_us();
        for (int i = 0; i < 20000; i++) damaged += munmap(other(PAGE), PAGE) != 0;
        number = cpu_us() - before;
    }
    fprintf(stderr, "%ld\n", number);
    printf("damaged %ld\n", damaged);
    return 0;
}
