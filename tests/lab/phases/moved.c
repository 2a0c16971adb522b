/* Objects of every kind are placed, half of their pages touched, and a phase begins: by a call, at the third allocation of
 * begins(), or after some seconds, as the policy has it. Where the pages are is asked of the kernel (move_pages(2)) before
 * and after and compared with formulas written down here.
 *
 * moved call|allocation|time       stdout: a line per object and moment, "NAME before|after RIGHT WRONG"
 * $NODES: the nodes over which the policy deals out what is for all, those that the process was given (without: all
 * four).
 */
#define _GNU_SOURCE
#include <numamma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, NODES = 4, SIZE = 8 << 20, PAGES = SIZE / PAGE, SMALL = 96, SMALLS = 20000, HUGE = 512 };

char in_bss[SIZE] __attribute__((aligned(2 << 20)));
char in_data[100 * PAGE] __attribute__((aligned(4096))) = { 1 };

#define SITE __attribute__((noinline, noclone)) static void *
SITE by_malloc(size_t n) { void *p = malloc(n); __asm__ volatile(""); return p; }
SITE stays(size_t n) { void *p = malloc(n); __asm__ volatile("nop"); return p; }
SITE later(size_t n) { void *p = malloc(n); __asm__ volatile("nop; nop"); return p; }
SITE by_small(size_t n) { void *p = malloc(n); __asm__ volatile("nop; nop; nop"); return p; }
SITE begins(size_t n) { void *p = malloc(n); __asm__ volatile("nop; nop; nop; nop"); return p; }
SITE by_mmap(size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("");
    return p;
}

static int nodes[PAGES], given[NODES] = {0, 1, 2, 3}, count = NODES;

static void where(char *p, long n) {
    static void *pages[PAGES];
    for (long i = 0; i < n; i++) pages[i] = p + i * PAGE, nodes[i] = -1;
    if (syscall(SYS_move_pages, 0, n, pages, NULL, nodes, 0) != 0) perror("move_pages");
}

/* The first page of the huge page that page i of n is a part of, or -1: 2 MiB at a multiple of 2 MiB, all on one node. */
static long huge_of(char *p, long n, long i) {
    long first = i - ((uintptr_t)p / PAGE + (uintptr_t)i) % HUGE;
    if (first < 0 || first + HUGE > n) return -1;
    for (long k = first; k < first + HUGE; k++)
        if (nodes[k] < 0 || nodes[k] != nodes[first]) return -1;
    return first;
}

/* The kernel's interleaving, which counts huge pages and pages of 4 KiB apart, each from where it likes (for .data that is
 * the file's offset): node follows node from the first of its kind. */
static int in_turn(char *p, long n, long i) {
    long huge = huge_of(p, n, i), k = 0;
    while (nodes[k] < 0 || (huge_of(p, n, k) < 0) != (huge < 0)) k++; /* ends at page i */
    long turns = huge < 0 ? i - k : (huge - k) / HUGE;
    int at = 0;
    while (at < count && given[at] != nodes[k]) at++;
    return at < count && nodes[i] == given[(at + turns) % count];
}

/* block: slices of 2 MiB, node after node. cyclic: 64 KiB on nodes 3 and 1 in turn. A digit: that node. */
static int right(const char *formula, char *p, long n, long i) {
    int node = nodes[i];
    if (!strcmp(formula, "block")) return node == given[i / HUGE % count];
    if (!strcmp(formula, "cyclic")) return node == (i / 16 % 2 ? 1 : 3);
    if (!strcmp(formula, "turns")) return in_turn(p, n, i);
    return node == formula[0] - '0';
}

static long show(const char *name, const char *moment, char *p, long n, const char *formula) {
    long good = 0, bad = 0;
    where(p, n);
    for (long i = 0; i < n; i++)
        if (nodes[i] >= 0) *(right(formula, p, n, i) ? &good : &bad) += 1;
    if (moment) printf("%s %s %ld %ld\n", name, moment, good, bad);
    return bad;
}

static char *row[SMALLS];

/* Of one in 40 of the small objects, those whose page is not on node 2. */
static long small_elsewhere(void) {
    long bad = 0;
    for (int i = 0; i < SMALLS; i += 40) {
        where((char *)((uintptr_t)row[i] & -(uintptr_t)PAGE), 1);
        bad += nodes[0] != 2;
    }
    return bad;
}

int main(int argc, char **argv) {
    time_t started = time(NULL);
    const char *how = argc > 1 ? argv[1] : "call", *all_nodes = getenv("NODES");
    if (all_nodes) count = sscanf(all_nodes, "%d %d %d %d", &given[0], &given[1], &given[2], &given[3]);
    char *heap = by_malloc(SIZE);
    /* In one way the mapping begins within 2 MiB: it has huge pages and others. */
    if (!strcmp(how, "time") && mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return 2;
    char *map = by_mmap(SIZE), *still = stays(SIZE);
    struct { const char *name; char *p; long n; const char *before, *after; } all[] = {
        { "in_bss", in_bss, PAGES, "block", "turns" },
        { "in_data", in_data, 100, "0", "turns" },
        { "by_malloc", heap, PAGES, "block", "cyclic" },
        { "by_mmap", map, PAGES, "1", "turns" },
        { "stays", still, PAGES, "block", "block" },
    };
    for (int k = 0; k < 5; k++) /* half of it, in pieces of 1 MiB */
        for (long i = 0; i < all[k].n; i++)
            if (i / 256 % 2 == 0) all[k].p[(size_t)i * PAGE] = (char)(i + k);
    for (int i = 0; i < SMALLS; i++) memset(row[i] = by_small(SMALL), i, SMALL);
    for (int k = 0; k < 5; k++) show(all[k].name, "before", all[k].p, all[k].n, all[k].before);
    if (!strcmp(how, "call")) {
        numamma_phase("nothing of that name");
        numamma_phase("solve");
    } else if (!strcmp(how, "allocation")) {
        for (int i = 0; i < 3; i++) free(begins(64));
    } else {
        while (time(NULL) < started + 8) usleep(100000); /* the phase begins six seconds after the program */
    }
    char *fresh = later(SIZE); /* allocated in the phase */
    memset(fresh, 1, SIZE);
    show("later", "after", fresh, PAGES, "cyclic");
    long bad = 1;
    for (int try = 0; bad && try < 600; try++) { /* at most a minute */
        usleep(100000);
        bad = small_elsewhere();
        for (int k = 0; k < 5; k++) bad += show(all[k].name, NULL, all[k].p, all[k].n, all[k].after);
    }
    for (int k = 0; k < 5; k++) /* the rest is touched now, and must go right at once */
        for (long i = 0; i < all[k].n; i++)
            if (i / 256 % 2 == 1) all[k].p[(size_t)i * PAGE] = (char)(i + k);
    for (int k = 0; k < 5; k++) show(all[k].name, "after", all[k].p, all[k].n, all[k].after);
    long small = small_elsewhere();
    printf("by_small after %ld %ld\n", SMALLS / 40 - small, small);
    for (int i = 0; i < SMALLS; i += 40)
        for (int b = 0; b < SMALL; b++)
            if (row[i][b] != (char)i) return printf("small object %d changed\n", i), 1;
    for (int k = 0; k < 5; k++)
        for (long i = k == 1; i < all[k].n; i++)
            if (all[k].p[(size_t)i * PAGE] != (char)(i + k)) return printf("%s changed\n", all[k].name), 1;
    usleep(1000000); /* the mover may still be looking at the last pages, which are where they belong */
    return 0;
}
