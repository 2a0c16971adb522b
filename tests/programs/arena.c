/* One large allocation, and one large mapping, that the program divides itself; prints where their pages are.
 *
 * For a policy with a rule for each part. The main thread alone touches everything. The pool grows and shrinks by
 * realloc, is freed and allocated again; of the mapping a hole is cut out and the rest moved. The kernel is asked for
 * the node of every page (move_pages(2) with nodes = NULL), and the answer is printed run by run:
 *     NAME first_page pages node
 * What the memory holds is checked at every step.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, MIB = 1 << 20 };

__attribute__((noinline)) static char *make_pool(size_t size) { return malloc(size); }

__attribute__((noinline)) static char *make_map(size_t size) {
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void fill(char *base, size_t from, size_t to) {
    for (size_t i = from; i < to; i += sizeof(uint64_t)) *(uint64_t *)(base + i) = i * 7 + 1;
}

static void check(const char *name, const char *base, size_t from, size_t to) {
    for (size_t i = from; i < to; i += sizeof(uint64_t))
        if (*(uint64_t *)(base + i) != i * 7 + 1) {
            printf("%s: wrong at %zu\n", name, i);
            exit(1);
        }
}

static void show(const char *name, const char *base, size_t from, size_t to) {
    uintptr_t start = (uintptr_t)base & -(uintptr_t)PAGE;
    long first = from / PAGE, n = to / PAGE - first, at = 0;
    void **pages = malloc(n * sizeof *pages);
    int *node = malloc(n * sizeof *node);
    for (long i = 0; i < n; i++) pages[i] = (void *)(start + (first + i) * PAGE), node[i] = -1;
    if (syscall(SYS_move_pages, 0, n, pages, NULL, node, 0) != 0) perror("move_pages");
    for (long i = 1; i <= n; i++)
        if (i == n || node[i] != node[at]) {
            printf("%s %ld %ld %d\n", name, first + at, i - at, node[at]);
            at = i;
        }
    free(pages), free(node);
}

int main(void) {
    char *pool = make_pool(12 * MIB);
    fill(pool, 0, 12 * MIB);
    show("pool", pool, 0, 12 * MIB);
    pool = realloc(pool, 20 * MIB);
    check("grown", pool, 0, 12 * MIB);
    fill(pool, 12 * MIB, 20 * MIB);
    show("grown", pool, 0, 20 * MIB);
    pool = realloc(pool, 10 * MIB);
    check("shrunk", pool, 0, 10 * MIB);
    show("shrunk", pool, 0, 10 * MIB);
    free(pool);
    for (int i = 0; i < 3; i++) {
        pool = make_pool(12 * MIB);
        fill(pool, 0, 12 * MIB);
        if (i == 2) show("again", pool, 0, 12 * MIB);
        free(pool);
    }
    char *tiny = make_pool(100), *small = make_pool(3 * PAGE);
    fill(tiny, 0, 96), fill(small, 0, 3 * PAGE);
    check("tiny", tiny, 0, 96), check("small", small, 0, 3 * PAGE);
    free(tiny), free(small);
    char *map = make_map(12 * MIB);
    fill(map, 0, 12 * MIB);
    show("map", map, 0, 12 * MIB);
    munmap(map + 2 * MIB, MIB);
    check("cut", map, 3 * MIB, 12 * MIB);
    show("cut", map, 3 * MIB, 12 * MIB);
    munmap(map, 2 * MIB), munmap(map + 3 * MIB, 9 * MIB);
    printf("done\n");
    return 0;
}
