/* What a program does all the time with arrays of up to a few MiB, and glibc does at hardly any cost.   churn MODE
 *   rows      1,000 rows of 8,000 bytes, all alive; writes: how many different offsets in a page they begin at
 *   calloc    2,000 times calloc of 1 MiB, written and freed; writes: page faults
 *   swing     a buffer that realloc fits to 40 to 120 KiB and 0.2 to 2 MiB, 4,000 times each; writes: page faults
 *   resized   a buffer of 1 to 300 KiB that realloc brings to another size 50,000 times; writes: page faults
 *   brief     200,000 arrays of 4 to 36 KiB, one at a time; writes: page faults
 *   aligned   15,000 blocks of 4,200 bytes at multiples of 64, every second one freed and made anew; writes: resident KiB at
 *             the peak
 *   steps     200 times a list of 10,000 small objects is built and freed; writes: page faults
 *   confined  a list of 300 MiB of small objects, then PR_SET_NO_NEW_PRIVS, then another list in its place, twice; writes:
 *             resident KiB at the peak
 * Figures are written to standard error. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static int damaged;

__attribute__((noinline)) static unsigned char *array(size_t n) {
    unsigned char *p = malloc(n);
    if (!p) exit(3);
    return p;
}

__attribute__((noinline)) static unsigned char *zeroed(size_t n) {
    unsigned char *p = calloc(1, n);
    if (!p) exit(3);
    return p;
}

__attribute__((noinline)) static unsigned char *fitted(unsigned char *p, size_t n) {
    p = realloc(p, n);
    if (!p) exit(3);
    return p;
}

static unsigned below(unsigned n) {
    static unsigned state = 1;
    state = state * 1103515245 + 12345;
    return (state >> 8) % n;
}

static long faults(void) {
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    return now.ru_minflt;
}

static long rows(void) {
    enum { ROWS = 1000, BYTES = 8000, OFFSETS = 4096 / 16 };
    static unsigned char *row[ROWS], seen[OFFSETS];
    long different = 0;
    for (int i = 0; i < ROWS; i++) {
        memset(row[i] = array(BYTES), i, BYTES);
        unsigned char *offset = &seen[(uintptr_t)row[i] % 4096 / 16];
        different += !*offset;
        *offset = 1;
    }
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < BYTES; j++) damaged |= row[i][j] != (unsigned char)i;
        free(row[i]);
    }
    return different;
}

static void calloc_again(void) {
    enum { BYTES = 1 << 20 };
    for (int i = 0; i < 2000; i++) {
        unsigned char *p = zeroed(BYTES);
        for (int j = 0; j < BYTES; j += 512) damaged |= p[j];
        memset(p, 1, BYTES);
        free(p);
    }
}

static void swing(size_t least, size_t most) {
    unsigned char *p = array(least);
    size_t n = least;
    p[0] = 0;
    for (int i = 1; i < 4000; i++) {
        damaged |= p[0] != (unsigned char)(i - 1);
        size_t next = least + below(most - least);
        p = fitted(p, next);
        if (next > n) memset(p + n, i, next - n);
        p[0] = i;
        n = next;
    }
    free(p);
}

static void resized(void) {
    unsigned char *p = array(1000);
    size_t n = 1000;
    p[0] = p[n - 1] = 0;
    for (int i = 1; i < 50000; i++) {
        size_t next = 1000 + below(300000);
        damaged |= p[0] != (unsigned char)(i - 1) || p[n - 1] != (unsigned char)(i - 1);
        p = fitted(p, n = next);
        p[0] = p[n - 1] = i;
    }
    free(p);
}

static void brief(void) {
    for (int i = 0; i < 200000; i++) {
        size_t n = (4 << 10) + below(32 << 10);
        unsigned char *p = array(n);
        p[0] = p[n / 2] = p[n - 1] = i;
        free(p);
    }
}

__attribute__((noinline)) static unsigned char *at_line(size_t n) {
    void *p = NULL;
    if (posix_memalign(&p, 64, n)) exit(3);
    return p;
}

static long aligned(void) {
    enum { COUNT = 15000, BYTES = 4200 };
    static unsigned char *held[COUNT];
    for (int i = 0; i < COUNT; i++) memset(held[i] = at_line(BYTES), i, BYTES);
    for (int i = 0; i < COUNT; i += 2) {
        free(held[i]);
        memset(held[i] = at_line(BYTES), i, BYTES);
    }
    for (int i = 0; i < COUNT; i++) {
        damaged |= (uintptr_t)held[i] % 64 != 0;
        for (int j = 0; j < BYTES; j++) damaged |= held[i][j] != (unsigned char)i;
        free(held[i]);
    }
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    return now.ru_maxrss;
}

static void steps(void) {
    enum { NODES = 10000 };
    static unsigned char *node[NODES];
    for (int step = 0; step < 200; step++) {
        for (int i = 0; i < NODES; i++) memset(node[i] = array(100), step + i, 100);
        for (int i = 0; i < NODES; i++) {
            damaged |= node[i][99] != (unsigned char)(step + i);
            free(node[i]);
        }
    }
}

struct node {
    struct node *next;
    unsigned char rest[3000 - sizeof(void *)];
};

static struct node *list(void) {
    struct node *first = NULL;
    for (int i = 0; i < 100000; i++) {
        struct node *node = (struct node *)array(sizeof *node);
        memset(node->rest, i, sizeof node->rest);
        node->next = first;
        first = node;
    }
    return first;
}

static void drop(struct node *first) {
    for (int i = 99999; first; i--) {
        struct node *next = first->next;
        damaged |= first->rest[77] != (unsigned char)i;
        free(first);
        first = next;
    }
}

static long confined(void) {
    struct node *first = list();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) exit(4);
    for (int i = 0; i < 2; i++) {
        drop(first);
        first = list();
    }
    drop(first);
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    return now.ru_maxrss;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    long figure = 0, before = faults();
    if (!strcmp(mode, "rows")) figure = rows();
    if (!strcmp(mode, "confined")) figure = confined();
    if (!strcmp(mode, "aligned")) figure = aligned();
    if (!strcmp(mode, "calloc")) calloc_again();
    if (!strcmp(mode, "swing")) {
        swing(40 << 10, 120 << 10);
        swing(200 << 10, 2 << 20);
    }
    if (!strcmp(mode, "resized")) resized();
    if (!strcmp(mode, "brief")) brief();
    if (!strcmp(mode, "steps")) steps();
    fprintf(stderr, "%ld\n", figure ? figure : faults() - before);
    printf("damaged %d\n", damaged);
    return 0;
}
