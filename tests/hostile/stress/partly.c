/* Arrays of which the program writes a part only.   partly HOW
 *   halves MB   STEPS times arrays of 128 KiB to 4 MiB, MB in all, of which the first half is written, that are freed
 *               together
 *   changing    as "halves 56", first with a sixteenth written, then half, then all, 20 MiB in all
 *   objects     60 times 3,000 objects of 4 to 24 KiB by calloc that are freed together, then arrays of 64 KiB to 2 MiB,
 *               97 MB in all, of which all is written
 * Writes: the most memory, KiB, ms of CPU time, and page faults. Figures are written to standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "status.h"

enum { STEPS = 60, MOST = 4096 };

static int damaged;
static unsigned char *held[MOST];
static size_t sizes[MOST];

static unsigned below(unsigned bound) {
    static unsigned random = 1;
    random = random * 1664525 + 1013904223;
    return (random >> 8) % bound;
}

__attribute__((noinline)) static void *made(size_t size) {
    void *p = malloc(size);
    __asm__ volatile("" : "+r"(p));
    return p;
}

__attribute__((noinline)) static void *cleared(size_t size) {
    void *p = calloc(1, size);
    __asm__ volatile("" : "+r"(p));
    return p;
}

/* Arrays of 2^least to 2^(least + span) bytes, `bytes` in all, of each of which one part in `part` is written. */
static int fill(int least, int span, size_t bytes, int part) {
    int count = 0;
    for (size_t all = 0; all < bytes && count < MOST; count++) {
        size_t size = (size_t)1 << (least + below(span));
        size += below(size);
        if (!(held[count] = made(size))) exit(3);
        memset(held[count], count, size / part);
        sizes[count] = size / part;
        all += size;
    }
    return count;
}

static void drop(int count) {
    for (int i = 0; i < count; i++) {
        unsigned char *p = held[i], mark = (unsigned char)i;
        damaged |= p[0] != mark || p[sizes[i] / 2] != mark || p[sizes[i] - 1] != mark;
        free(p);
    }
}

static void steps(int times, size_t bytes, int part) {
    for (int step = 0; step < times; step++) drop(fill(17, 5, bytes, part));
}

/* 300 arrays of `SIZE` bytes, in which the bytes from `first` to `end` are written, one in `step`. */
static void together(size_t first, size_t end, size_t step) {
    enum { COUNT = 300, SIZE = 1500000 };
    for (int i = 0; i < COUNT; i++) {
        if (!(held[i] = made(SIZE))) exit(3);
        for (size_t k = first; k < end && k < SIZE; k += step) held[i][k] = (unsigned char)i;
    }
    for (int i = 0; i < COUNT; i++) damaged |= held[i][first] != (unsigned char)i, free(held[i]);
}

static void varied(int turn) {
    enum { COUNT = 1000, PART = 20000 };
    for (int i = 0; i < COUNT; i++) {
        size_t size = 200000 + (size_t)(turn * COUNT + i) % 97 * 65536, at = below(1 << 24) % (size - PART);
        if (!(held[i] = cleared(size))) exit(3);
        for (int k = 0; k < PART; k++) damaged |= held[i][at + (size_t)k] != 0, held[i][at + (size_t)k] = 1;
    }
    for (int i = 0; i < COUNT; i++) free(held[i]);
}

static void first(void) {
    enum { COUNT = 30, SIZE = 1000000 };
    unsigned char *large = made(20000000);
    if (!large) exit(3);
    memset(large, 1, 20000000), free(large);
    for (int step = 0; step < 300; step++) {
        for (int i = 0; i < COUNT; i++) {
            if (!(held[i] = made(SIZE))) exit(3);
            memset(held[i], i, 1 + below(SIZE / 4));
        }
        for (int i = 0; i < COUNT; i++) damaged |= held[i][0] != i, free(held[i]);
    }
}

static void only_read(void) {
    enum { COUNT = 64, SIZE = 1000000 };
    for (int step = 0; step < 30; step++) {
        for (int i = 0; i < COUNT; i++) {
            if (!(held[i] = cleared(SIZE))) exit(3);
            for (int k = 0; k < SIZE; k += 64) damaged |= held[i][k] != 0;
            held[i][step * 64] = 1;
        }
        for (int i = 0; i < COUNT; i++) free(held[i]);
    }
}

static void lookups(void) {
    enum { COUNT = 8, SIZE = 5000000 };
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i < COUNT; i++) {
            if (!(held[i] = cleared(SIZE))) exit(3);
            for (int k = 0; k < SIZE; k += 4096) damaged |= held[i][k] != 0;
            for (int k = 0; k < SIZE / 4096 / 50; k++) held[i][below(SIZE / 4096) * 4096] = 1;
        }
        for (int i = 0; i < COUNT; i++) free(held[i]);
    }
}

static void grown(void) {
    enum { COUNT = 100, SIZE = 1900000, LARGER = 2200000 };
    for (int i = 0; i < COUNT; i++) {
        if (!(held[i] = cleared(SIZE))) exit(3);
        held[i][i * 4096] = 1;
        for (int k = 0; k < SIZE; k += 4096) damaged |= held[i][k] != (k == i * 4096);
        if (!(held[i] = realloc(held[i], LARGER))) exit(3);
        for (int k = 0; k < SIZE; k += 4096) damaged |= held[i][k] != (k == i * 4096);
    }
    for (int i = 0; i < COUNT; i++) free(held[i]);
}

static void doubled(size_t size) {
    for (int i = 0; i < 2000; i++) {
        unsigned char *array = made(size / 2);
        if (!array) exit(3);
        array[0] = (unsigned char)i, array[size / 2 - 1] = 7;
        if (!(array = realloc(array, size))) exit(3);
        damaged |= array[0] != (unsigned char)i || array[size / 2 - 1] != 7;
        memset(array, i, 1 + below((unsigned)size));
        free(array);
    }
}

static void again(size_t size, size_t part) {
    for (int i = 0; i < 2000; i++) {
        unsigned char *array = cleared(size);
        if (!array) exit(3);
        for (size_t k = 0; k < part; k++) damaged |= array[k] != 0;
        damaged |= array[size - 1] != 0;
        memset(array, 1, part);
        free(array);
    }
}

static void objects(void) {
    enum { COUNT = 3000 };
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++) {
            size_t size = 4096 + below(20 << 10);
            if (!(held[i] = cleared(size))) exit(3);
            damaged |= held[i][0] != 0 || held[i][size / 2] != 0 || held[i][size - 1] != 0;
            memset(held[i], i, sizes[i] = size);
        }
        drop(COUNT);
    }
    drop(fill(16, 5, 97 << 20, 1));
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    struct rusage used;
    if (!strncmp(how, "halves ", 7)) steps(STEPS, strtoul(how + 7, 0, 10) << 20, 2);
    if (!strcmp(how, "changing"))
        steps(STEPS, 56 << 20, 16), steps(STEPS, 56 << 20, 2), steps(STEPS, 20 << 20, 1);
    for (int i = 0; i < 10 && !strcmp(how, "moving"); i++) together((size_t)i * 150000, (size_t)(i + 1) * 150000, 1);
    for (int i = 0; i < 10 && !strcmp(how, "apart"); i++) together((size_t)i * 4096, 1500000, 40960);
    for (int i = 0; i < 20 && !strcmp(how, "varied"); i++) varied(i);
    if (!strcmp(how, "first")) first();
    if (!strcmp(how, "read")) only_read();
    if (!strcmp(how, "lookups")) lookups();
    if (!strcmp(how, "grown")) grown();
    if (!strcmp(how, "doubled")) doubled(2187264), doubled(300000);
    if (!strcmp(how, "again")) again(1000000, 65536), again(200000, 20480);
    if (!strcmp(how, "objects")) objects();
    getrusage(RUSAGE_SELF, &used);
    long ms = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
    fprintf(stderr, "%ld %ld %ld\n", status("VmHWM:"), ms, used.ru_minflt);
    printf("damaged %d\n", damaged);
    return 0;
}
