/* 20 times an array of 10 MB, then one of 6 MB, each filled and freed. A line for each of the last ten arrays:
 *   BYTES again=.. new=.. wrong=..
 * again: it begins where the one before did; new: page faults; wrong: pages of the first half that are not on node 0,
 * and of the second half that are not on node 1, but for 3 MiB around its middle. With $NODES 1, the nodes that the
 * process was given, all that are not on node 1. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, ARRAYS = 40, SHOWN = 10, AROUND = 3 << 19 };

__attribute__((noinline)) static char *array(size_t n) { void *p = malloc(n); __asm__ volatile(""); return p; }

static int wrong(char *p, size_t size) {
    const char *nodes = getenv("NODES");
    int count = 0, only_1 = nodes && !strcmp(nodes, "1");
    for (size_t at = 0; at < size; at += PAGE) {
        if (at + AROUND > size / 2 && at < size / 2 + AROUND) continue;
        void *page = p + at;
        int node = -1;
        if (syscall(SYS_move_pages, 0, 1ul, &page, NULL, &node, 0)) return -1;
        count += node != (only_1 || at > size / 2);
    }
    return count;
}

static long faults(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
}

int main(void) {
    int damaged = 0;
    char *before = NULL;
    for (int n = 0; n < ARRAYS; n++) {
        size_t size = n % 2 ? 6000000 : 10000000;
        long start = faults();
        char *p = array(size);
        if (!p) return 3;
        memset(p, n, size);
        long new = faults() - start;
        if (n >= ARRAYS - SHOWN) printf("%zu again=%d new=%ld wrong=%d\n", size, p == before, new, wrong(p, size));
        for (size_t k = 0; k < size; k += 1000) damaged |= p[k] != (char)n;
        before = p;
        free(p);
    }
    printf("damaged %d\n", damaged);
    return 0;
}
