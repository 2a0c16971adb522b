/* Objects in small blocks beside a program that needs many mappings and threads itself.
 *
 * crowd OWN first|last: makes OWN mappings of its own before or after its objects, then 100 threads. stdout: for each object
 * its pages that are not on node (page mod 2), and where they are; then the mappings in all, and what failed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, SIZE = 8 << 20, THREADS = 100 };

char in_bss[SIZE + PAGE];

#define SITE __attribute__((noinline, noclone)) static char *
SITE by_malloc(size_t n) { char *p = malloc(n); __asm__ volatile(""); return p; }
SITE by_mmap(size_t n) {
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("");
    return p;
}

static void show(const char *name, char *object) {
    char *lo = (char *)(((uintptr_t)object + PAGE - 1) & -(uintptr_t)PAGE);
    enum { N = SIZE / PAGE };
    static void *pages[N];
    static int node[N];
    int off = 0, absent = 0;
    memset(object, 1, SIZE);
    for (int i = 0; i < N - 1; i++) pages[i] = lo + (size_t)i * PAGE;
    syscall(SYS_move_pages, 0, (long)N - 1, pages, NULL, node, 0);
    for (int i = 0; i < N - 1; i++) absent += node[i] < 0, off += node[i] != i % 2;
    printf("%s: %d absent, %d off\n", name, absent, off);
    printf("%s at %p, node of every fourth page: ", name, (void *)object);
    for (int i = 0; i < N - 1; i += 4) putchar(node[i] < 0 ? '?' : '0' + node[i]);
    putchar('\n');
}

static int own(int count) {
    int failed = 0;
    for (int i = 0; i < count; i++) /* neighbours of different protection do not merge */
        failed += mmap(NULL, PAGE, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
    return failed;
}

static void *wait_for(void *barrier) { return pthread_barrier_wait(barrier), NULL; }

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 0, first = argc > 2 && !strcmp(argv[2], "first"), failed = 0, lines = 0;
    if (first) failed += own(count);
    show("in_bss", in_bss);
    show("by_malloc", by_malloc(SIZE));
    show("by_mmap", by_mmap(SIZE));
    if (!first) failed += own(count);
    pthread_t thread[THREADS];
    pthread_barrier_t barrier;
    int started = 0;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    while (started < THREADS && pthread_create(&thread[started], NULL, wait_for, &barrier) == 0) started++;
    if (started == THREADS) {
        pthread_barrier_wait(&barrier);
        for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int c; maps && (c = getc(maps)) != EOF;) lines += c == '\n';
    printf("%d mappings, %d failed, %d threads\n", lines, failed, started);
    return 0;
}
