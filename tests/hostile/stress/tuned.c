/* Large arrays of which an allocator may keep what was freed.   tuned one|four|other|huge|late [mallopt]
 *   one   an array of 40 MiB that each of 20 steps allocates, writes and frees
 *   four  the same with four of 36 MiB
 *   other as one, then an array of the same size from another function
 *   late  as one, after an array was made read-only in part while glibc had mappings, and freed after that
 *   huge  an array of 40 MiB, once; writes to standard error: KiB of huge pages in it
 * mallopt: without mappings, and nothing is given back (M_MMAP_MAX, M_TRIM_THRESHOLD).
 * All but huge write to standard error: page faults, resident KiB at the peak, after malloc_trim, and how many arrays
 * begin on a page. */
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "status.h"

enum { STEPS = 20, PAGE = 4096 };

static int on_pages;

__attribute__((noinline)) static char *array(size_t n) {
    char *p = malloc(n);
    if (!p) exit(3);
    on_pages += (uintptr_t)p % PAGE == 0;
    return p;
}

__attribute__((noinline)) static char *other(size_t n) {
    char *p = malloc(n);
    if (!p) exit(3);
    return p;
}

static void tell(void) {
    if (!mallopt(M_MMAP_MAX, 0) || !mallopt(M_TRIM_THRESHOLD, -1)) exit(4);
}

static int step(char **all, int number, size_t n, int mark) {
    int damaged = 0;
    for (int k = 0; k < number; k++) {
        all[k] = array(n);
        for (size_t i = 0; i < n; i += PAGE) all[k][i] = (char)(mark + k);
    }
    for (int k = 0; k < number; k++) {
        for (size_t i = 0; i < n; i += PAGE) damaged += all[k][i] != (char)(mark + k);
        free(all[k]);
    }
    return damaged;
}

static long huge_kib(void) {
    char line[256];
    long value = -1;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "AnonHugePages:", 14)) value = atol(line + 14);
    if (f) fclose(f);
    return value;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    const char *how = argv[1];
    char *all[4];
    int damaged = 0, late = !strncmp(how, "late", 4), number = strncmp(how, "four", 4) ? 1 : 4;
    size_t n = (size_t)(number == 1 ? 40 : 36) << 20;
    if (!strncmp(how, "huge", 4)) {
        char *p = array(n);
        for (size_t i = 0; i < n; i += PAGE) p[i] = 1;
        fprintf(stderr, "%ld\n", huge_kib());
        puts("damaged 0");
        return 0;
    }
    if (strstr(how, "mallopt")) tell();
    if (late) {
        damaged += step(all, 1, n, 1) + step(all, 1, n, 2);
        if (!mallopt(M_MMAP_MAX, 65536)) return 4;
        char *p = array(n), *page = p + ((size_t)36 << 20) - (uintptr_t)p % PAGE;
        if (mprotect(page, PAGE, PROT_READ)) return 5;
        tell();
        free(p);
    }
    for (int k = 0; k < STEPS; k++) damaged += step(all, number, n, k);
    if (!strncmp(how, "other", 5)) {
        char *p = other(n);
        for (size_t i = 0; i < n; i += PAGE) p[i] = 1;
        free(p);
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    long peak = status("VmHWM:");
    malloc_trim(0);
    fprintf(stderr, "%ld %ld %ld %d\n", used.ru_minflt, peak, status("VmRSS:"), on_pages);
    printf("damaged %d\n", damaged);
    return 0;
}
