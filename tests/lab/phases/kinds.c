/* Objects that move in their own way between phases: hidden by NUMA balancing, populated, hugetlb, shared, cut while they move.
 * Prints for each how many pages are where a formula of its own wants them, and how many are not. */
#define _GNU_SOURCE
#include <numamma.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 2048
#define HUGE 512
#define BLOCK 16 /* pages: 64 KiB */

__attribute__((noinline)) static char *map(size_t size, int flags) {
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
__attribute__((noinline)) char *hidden(size_t size) { char *p = malloc(size); __asm__("" : "+r"(p)); return p; }
__attribute__((noinline)) char *populated(size_t size) { char *p = malloc(size); __asm__("" : "+r"(p)); return p; }
__attribute__((noinline)) char *huge(size_t size) { char *p = map(size, MAP_PRIVATE | MAP_HUGETLB); __asm__("" : "+r"(p)); return p; }
__attribute__((noinline)) char *shared(size_t size) { char *p = map(size, MAP_SHARED); __asm__("" : "+r"(p)); return p; }
__attribute__((noinline)) char *cut(size_t size) { char *p = map(size, MAP_PRIVATE); __asm__("" : "+r"(p)); return p; }

static int node(char *page) {
    int status = -1;
    void *at = page;
    syscall(SYS_move_pages, 0, 1, &at, NULL, &status, 0);
    return status;
}

/* Pages [first, end) of blocks in turn over four nodes: how many are elsewhere. With a name it is printed. */
static int show(const char *name, char *p, int first, int end, int step) {
    int right = 0, wrong = 0, start = step == BLOCK ? 0 : node(p);
    for (int i = first; i < end; i += step == BLOCK ? 1 : step)
        (node(p + (size_t)i * PAGE) == (start + i / step) % 4 ? right++ : wrong++);
    if (name) printf("%s %d %d\n", name, right, wrong);
    fflush(stdout);
    return wrong;
}

static void touch(char *p, int pages) {
    for (int i = 0; i < pages; i++) p[(size_t)i * PAGE] = 1;
}

int main(void) {
    size_t size = (size_t)PAGES * PAGE;
    char *a = hidden(size), *b = populated(size), *c = huge(size * 2), *d = shared(size), *e = cut(size);
    if (!a || !b || !c || !d || !e) return 2;
    touch(a, PAGES), touch(b, PAGES / 2), touch(c, 2 * PAGES), touch(d, PAGES), touch(e, PAGES);
    /* Until the kernel has hidden some: it looks after each second that a thread ran. Where it does not, this tries less. */
    int away = 0;
    for (time_t end = time(NULL) + 15, next = 0; away == 0 && time(NULL) < end;) {
        if (time(NULL) <= next) continue;
        next = time(NULL);
        for (int i = 0; i < PAGES; i += 64) away += node(a + (size_t)i * PAGE) == -2;
    }
    /* From here on nobody else moves pages. */
    FILE *balancing = fopen("/proc/sys/kernel/numa_balancing", "w");
    if (!balancing || fputs("0", balancing) < 0 || fclose(balancing) != 0) return 3;
    printf("away %d\n", away);
    numamma_phase("solve");
    munmap(e + (size_t)PAGES / 4 * PAGE, size / 4);
    for (int tenths = 0; tenths < 600; tenths++) { /* at most a minute */
        usleep(100000);
        if (!show(NULL, a, 0, PAGES, BLOCK) && !show(NULL, b, 0, PAGES, BLOCK) && !show(NULL, c, 0, 2 * PAGES, HUGE) &&
            !show(NULL, d, 0, PAGES, BLOCK) && !show(NULL, e, 0, PAGES / 4, BLOCK) &&
            !show(NULL, e, PAGES / 2, PAGES, BLOCK)) break;
    }
    sleep(1); /* the mover may still be looking at the last pages, which are where they belong */
    show("hidden", a, 0, PAGES, BLOCK);
    show("populated", b, 0, PAGES, BLOCK);
    show("huge", c, 0, 2 * PAGES, HUGE);
    show("shared", d, 0, PAGES, BLOCK);
    show("cut", e, 0, PAGES / 4, BLOCK);
    show("cut", e, PAGES / 2, PAGES, BLOCK);
    return 0;
}
