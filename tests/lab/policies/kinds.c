/* One object of every kind a rule can name, and where its pages are by the kernel's word (move_pages(2)).
 *
 * kinds CPU: it binds itself there once it runs, so that all nodes are its own when the policy is read.
 *
 * stdout, a line per object: NAME ADDRESS SIZE then first:pages:node for every run of pages, counted from the object's
 * first whole page; node -1: not present.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SMALLS = 30000, SMALL = 100, PAGE = 4096, SIZE = (5 << 20) + 3 * PAGE + 100, DATA = 160 * PAGE, HUGE = 10 << 20 };
enum { STEPS = 1500000 };

char in_bss[SIZE];
uint64_t in_data[DATA / 8] = { 1, 2, 3 };

#define SITE __attribute__((noinline, noclone)) static void *
SITE by_malloc(size_t n) { void *p = malloc(n); __asm__ volatile(""); return p; }
SITE by_calloc(size_t n) { void *p = calloc(n / 4 + 1, 4); __asm__ volatile(""); return p; }
SITE by_realloc(void *old, size_t n) { void *p = realloc(old, n); __asm__ volatile(""); return p; }
/* One line for all calls: it grows from 150 KiB to `n` bytes and more, and each step is used before the next. */
SITE by_steps(size_t n) {
    char *p = NULL;
    for (size_t used = 0, now = 150000; used < n; used = now, now = now * 5 / 4) {
        p = realloc(p, now);
        now = malloc_usable_size(p);
        memset(p + used, 5, now - used);
    }
    return p;
}
SITE by_reallocarray(size_t n) { void *p = reallocarray(NULL, n, 1); __asm__ volatile(""); return p; }
SITE by_memalign(size_t n) { void *p = memalign(256, n); __asm__ volatile(""); return p; }
SITE by_posix_memalign(size_t n) { void *p = NULL; if (posix_memalign(&p, 1 << 16, n)) p = NULL; return p; }
SITE by_mmap(size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("");
    return p;
}

SITE by_shared(size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("");
    return p;
}
SITE by_hugetlb(size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    __asm__ volatile("");
    return p;
}
SITE by_shm(size_t n) {
    int fd = shm_open("/kinds", O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, n)) perror("shm_open");
    shm_unlink("/kinds");
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p;
}
SITE by_shmat(size_t n) {
    int id = shmget(IPC_PRIVATE, n, 0600);
    void *p = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    return p;
}

/* The nop keeps the compiler from folding it into by_malloc. */
SITE by_small(size_t n) { void *p = malloc(n); __asm__ volatile("nop"); return p; }

static void show(const char *name, const char *object, size_t size) {
    uintptr_t lo = ((uintptr_t)object + PAGE - 1) & -(uintptr_t)PAGE, hi = ((uintptr_t)object + size) & -(uintptr_t)PAGE;
    long n = (hi - lo) / PAGE, from = 0;
    void **pages = mmap(NULL, n * sizeof *pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int *node = mmap(NULL, n * sizeof *node, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < n; i++) pages[i] = (void *)(lo + i * PAGE), node[i] = -1;
    if (syscall(SYS_move_pages, 0, n, pages, NULL, node, 0) != 0) perror("move_pages");
    printf("%s %lu %zu", name, (unsigned long)object, size);
    for (long i = 1; i <= n; i++)
        if (i == n || (node[i] < 0 ? -1 : node[i]) != (node[from] < 0 ? -1 : node[from])) {
            printf(" %ld:%ld:%d", from, i - from, node[from] < 0 ? -1 : node[from]);
            from = i;
        }
    printf("\n");
}

int main(int argc, char **argv) {
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(argc > 1 ? atoi(argv[1]) : 0, &cpu);
    if (sched_setaffinity(0, sizeof cpu, &cpu)) perror("sched_setaffinity");
    char *grown = by_realloc(NULL, 3 * PAGE);
    memset(grown, 7, 3 * PAGE);
    grown = by_realloc(grown, SIZE);
    for (int i = 0; i < 3 * PAGE; i++)
        if (grown[i] != 7) return printf("realloc lost byte %d\n", i), 1;
    char *stepwise = by_steps(STEPS);
    size_t steps = malloc_usable_size(stepwise);
    for (size_t i = 0; i < steps; i++)
        if (stepwise[i] != 5) return printf("steps lost byte %zu\n", i), 1;
    struct { const char *name; char *p; size_t n; } all[] = {
        { "in_bss", in_bss, SIZE }, { "in_data", (char *)in_data, DATA }, { "by_malloc", by_malloc(SIZE), SIZE },
        { "by_calloc", by_calloc(SIZE), SIZE }, { "by_realloc", grown, SIZE },
        { "by_steps", stepwise, steps }, { "by_reallocarray", by_reallocarray(SIZE), SIZE },
        { "by_memalign", by_memalign(SIZE), SIZE },
        { "by_posix_memalign", by_posix_memalign(SIZE), SIZE }, { "by_mmap", by_mmap(SIZE), SIZE },
        { "by_shared", by_shared(SIZE), SIZE }, { "by_shm", by_shm(SIZE), SIZE }, { "by_shmat", by_shmat(SIZE), SIZE },
        { "by_hugetlb", by_hugetlb(HUGE), HUGE },
    };
    for (unsigned k = 0; k < sizeof all / sizeof *all; k++)
        if (all[k].p == MAP_FAILED) return perror(all[k].name), 1;
    for (unsigned k = 0; k < sizeof all / sizeof *all; k++)
        for (size_t i = 0; i < all[k].n; i += PAGE / 2) all[k].p[i] += 1;
    /* Small objects: what lies between the first whole page and the last is nothing but them. */
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (int i = 0; i < SMALLS; i++) {
        char *p = by_small(SMALL);
        memset(p, i, SMALL);
        if ((uintptr_t)p < low) low = (uintptr_t)p;
        if ((uintptr_t)p > high) high = (uintptr_t)p;
    }
    for (unsigned k = 0; k < sizeof all / sizeof *all; k++) show(all[k].name, all[k].p, all[k].n);
    show("by_small", (char *)low, high - low);
    return 0;
}
