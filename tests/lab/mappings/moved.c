/* Mappings from matched call sites, moved, grown and shrunk by mremap in every way. After each call it prints what the
 * system says of the result: the outcome, access rights, flags and name. Contents are checked. Addresses are not printed. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif
#define PAGE 4096ul
enum { PAGES = 64 };

__attribute__((noinline)) static char *matched(size_t n, int flags) {
    char *p = mmap(0, n, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("" ::: "memory");
    return p;
}

/* Access rights, flags and names of the areas in [p, p + n), equal neighbours once. What memory policies and huge page
 * advice of a placement change is left out. */
static void describe(const char *what, char *p, size_t n) {
    char line[512], last[600] = "", now[600] = "", out[4096] = "";
    unsigned long from = 0, to = 0, covered = 0;
    int inside = 0;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, f)) {
        unsigned long a, b;
        char rights[8], name[300] = "";
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %299[^\n]", &a, &b, rights, name) >= 3) {
            inside = b > (unsigned long)p && a < (unsigned long)p + n;
            from = a > (unsigned long)p ? a : (unsigned long)p;
            to = b < (unsigned long)p + n ? b : (unsigned long)p + n;
            if (strstr(name, "zero")) strcpy(name, "zero"); /* the inode of shared memory */
            snprintf(now, sizeof now, "%s %s", rights, name);
        } else if (inside && !strncmp(line, "VmFlags:", 8)) {
            covered += to - from;
            for (char *w = strtok(line + 8, " \n"); w; w = strtok(0, " \n"))
                if (strcmp(w, "sd") && strcmp(w, "nh") && strcmp(w, "hg")) strcat(strcat(now, " "), w);
            if (strcmp(now, last)) strcat(strcat(out, " | "), strcpy(last, now));
        }
    }
    fclose(f);
    printf("%s: %lu pages%s\n", what, covered / PAGE, out);
}

static void fill(char *p, size_t n, int mark) {
    for (size_t i = 0; i < n; i += PAGE) p[i] = (char)(mark + i / PAGE);
}

static void check(const char *p, size_t n, int mark) {
    for (size_t i = 0; i < n; i += PAGE)
        if (p[i] != (char)(mark + i / PAGE)) printf("DAMAGED page %zu\n", i / PAGE);
}

typedef void attribute(char *, size_t);
static void none(char *p, size_t n) { (void)p, (void)n; }
static void readable(char *p, size_t n) { mprotect(p, n, PROT_READ); }
static void locked(char *p, size_t n) { if (mlock(p, n)) puts("mlock refused"); }
static void dont_fork(char *p, size_t n) { madvise(p, n, MADV_DONTFORK); }
static void dont_dump(char *p, size_t n) { madvise(p, n, MADV_DONTDUMP); }
static void wiped(char *p, size_t n) { madvise(p, n, MADV_WIPEONFORK); }
static void mergeable(char *p, size_t n) { madvise(p, n, MADV_MERGEABLE); }
static void named(char *p, size_t n) { prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, n, "rows"); }
static void half(char *p, size_t n) { mprotect(p + n / 2, n / 2, PROT_READ); }
static void random_access(char *p, size_t n) { madvise(p, n, MADV_RANDOM); }
static void hole(char *p, size_t n) { munmap(p + n / 2, PAGE); (void)n; }

static const struct { const char *name; attribute *set; int shared; } attributes[] = {
    {"plain", none, 0}, {"readable", readable, 0}, {"locked", locked, 0}, {"dont fork", dont_fork, 0},
    {"dont dump", dont_dump, 0}, {"wiped", wiped, 0}, {"mergeable", mergeable, 0}, {"named", named, 0},
    {"half", half, 0}, {"random", random_access, 0}, {"hole", hole, 0}, {"shared", none, 1}, {"shared locked", locked, 1},
};

static char *target(size_t n) { return mmap(0, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }

static void report(const char *name, const char *how, char *q, size_t n, size_t kept, int mark) {
    char what[80];
    snprintf(what, sizeof what, "%s, %s", name, how);
    if (q == MAP_FAILED) {
        printf("%s: error %d\n", what, errno);
        return;
    }
    describe(what, q, n);
    if (kept) check(q, kept, mark);
}

int main(void) {
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    for (size_t a = 0; a < sizeof attributes / sizeof *attributes; a++) {
        const char *name = attributes[a].name;
        for (int way = 0; way < 8; way++) {
            size_t n = PAGES * PAGE, m = way == 1 ? n / 4 : way == 6 || way == 7 ? n : 3 * n;
            char *p = matched(n, attributes[a].shared ? MAP_SHARED : MAP_PRIVATE), *to = target(4 * n), *q = MAP_FAILED;
            char *q2 = 0;
            fill(p, n, way);
            attributes[a].set(p, n);
            int holes = attributes[a].set == hole;
            size_t kept = holes ? 0 : m < n ? m : n;
            switch (way) {
            case 0: q = mremap(p, n, m, MREMAP_MAYMOVE), report(name, "grown", q, m, attributes[a].shared ? n : kept, way); break;
            case 1: q = mremap(p, n, m, 0), report(name, "shrunk", q, m, kept, way); break;
            case 2: /* in place: the room behind is taken */
                q2 = mmap(p + n, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
                q = mremap(p, n, m, 0), report(name, "not in place", q, m, kept, way);
                if (q2 == p + n) munmap(q2, PAGE);
                break;
            case 3: q = mremap(p, n, m, MREMAP_MAYMOVE | MREMAP_FIXED, to), report(name, "fixed and grown", q, m, kept, way); break;
            case 4: m = n / 2; q = mremap(p, n, m, MREMAP_MAYMOVE | MREMAP_FIXED, to);
                report(name, "fixed and shrunk", q, m, holes ? 0 : m, way); break;
            case 5: m = n / 2; q = mremap(p + n / 4, m, n, MREMAP_MAYMOVE); /* the middle */
                report(name, "middle grown", q, n, 0, way);
                if (q != MAP_FAILED && !holes) check(q, m, way + PAGES / 4);
                m = n;
                break;
            case 6: q = mremap(p, n, m, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
                report(name, "old range kept", q, m, kept, way);
                if (q != MAP_FAILED) describe("  and the old range", p, n);
                break;
            case 7: q = mremap(p, 0, m, MREMAP_MAYMOVE), report(name, "duplicated", q, m, holes ? 0 : m, way); break;
            }
            int writable = attributes[a].set != readable && attributes[a].set != half;
            if (q != MAP_FAILED && writable && !attributes[a].shared) q[m - PAGE] = 1;
            if (q != MAP_FAILED) munmap(q, m);
            munmap(p, n), munmap(to, 4 * n);
        }
    }
    return 0;
}
