/* What other memory of a program does beside placed arrays.   beside MODE
 * What realloc does to a large array, then 8 steps of 8 arrays of 1 to 8 MiB that no rule places, of which one stays
 * with 100 bytes of it, and 8 such arrays of 9 to 12 MiB that realloc makes larger in turn:
 *   copied    `larger` makes an array of 12 MiB of `made` one of 24 MiB
 *   doubled   `larger` makes an array larger from 4 KiB to 16 MiB, twice as large each time
 *   shrunk    `larger` makes an array of 24 MiB one of 100 bytes
 *   foreign   `larger` makes an array of 12 MiB that no rule places one of 24 MiB
 *   nothing   realloc frees an array of 20 MB, then 50 times 60 arrays of 300 KB that no rule places are freed together
 * 60 times four arrays of 15 MB of `made` that are freed together, then 60 MB of other memory:
 *   mapped    60 mappings        once      one mapping        extended  one that mremap extends by 1 MB each time
 *   committed 1 MB each time of a reservation                 mallocs   600,000 blocks of 100 bytes
 *   callocs   as mallocs         threads   as mallocs, of four threads
 *   strings   6,000 blocks that realloc extends from 100 to 10,000 bytes
 *   grown     an array of 5 MB of `larger` from before, which `larger` extends by 5 MB each time
 * 200 times four arrays of 1 MB of `made` that are freed together, a mapping of 1 MB and 10,000 blocks of 100 bytes:
 *   scratch
 * Writes: page faults, the most memory, and the memory after all else is freed, KiB, to standard error. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB (1ul << 20)
enum { STEPS = 8, ARRAYS = 8, COLUMNS = 8, BLOCKS = 600000, THREADS = 4, STRINGS = 6000, MB = 1000000 };
static int damaged;
static void *stays[STEPS];

__attribute__((noipa)) static void *made(size_t n) { return malloc(n); }
__attribute__((noipa)) static void *larger(void *p, size_t n) { return realloc(p, n); }
__attribute__((noipa)) static void *other(size_t n) { return malloc(n); }
__attribute__((noipa)) static void *other_larger(void *p, size_t n) { return realloc(p, n); }

/* VmHWM or VmRSS. That of getrusage may be the parent's, from before exec. */
static long status_kib(const char *name) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    if (!status) exit(3);
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, name, strlen(name))) kib = atol(line + strlen(name) + 1);
    fclose(status);
    return kib;
}

static unsigned char *touched(void *p, size_t size, int mark) {
    unsigned char *bytes = p;
    if (!p || p == MAP_FAILED) exit(3);
    for (size_t i = 0; i < size; i += 4096) bytes[i] = (unsigned char)mark;
    bytes[size - 1] = (unsigned char)mark;
    return p;
}

static void check(const unsigned char *p, size_t size, int mark) {
    damaged |= p[0] != (unsigned char)mark || p[size - 1] != (unsigned char)mark;
}

static void others(void) {
    unsigned char *arrays[ARRAYS], *columns[COLUMNS] = {NULL};
    for (int step = 0; step < STEPS; step++) {
        size_t size = (size_t)(step + 1) * MIB;
        for (int i = 0; i < ARRAYS; i++) arrays[i] = touched(other(size), size, i);
        for (int i = 0; i < ARRAYS; i++) check(arrays[i], size, i);
        for (int i = 0; i < ARRAYS - 1; i++) free(arrays[i]);
        stays[step] = other_larger(arrays[ARRAYS - 1], 100);
    }
    for (size_t size = 9 * MIB; size < 12 * MIB; size += size / 16)
        for (int i = 0; i < COLUMNS; i++) columns[i] = touched(other_larger(columns[i], size), size, i);
    for (int i = 0; i < COLUMNS; i++) free(columns[i]);
}

static void doubled(void) {
    unsigned char *array = touched(made(4096), 4096, 1), *columns[COLUMNS] = {NULL};
    for (size_t size = 8192; size <= 16 * MIB; size *= 2) array = touched(larger(array, size), size, 1);
    for (size_t size = 256 << 10; size < MIB; size += size / 16)
        for (int i = 0; i < COLUMNS; i++) columns[i] = touched(other_larger(columns[i], size), size, i);
    for (int i = 0; i < COLUMNS; i++) free(columns[i]);
    others();
    check(array, 16 * MIB, 1), free(array);
}

static void nothing(void) {
    unsigned char *held[60], *array = touched(made(20 * MB), 20 * MB, 1);
    array = larger(array, 0);
    for (int step = 0; step < 50; step++) {
        for (int i = 0; i < 60; i++) held[i] = touched(other(300000), 300000, step);
        for (int i = 0; i < 60; i++) check(held[i], 300000, step), free(held[i]);
    }
}

static void arrays(int steps, int count, size_t size) {
    unsigned char *held[4];
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < count; i++) held[i] = touched(made(size), size, step);
        for (int i = 0; i < count; i++) check(held[i], size, step), free(held[i]);
    }
}

static void *map(void *at, size_t size, int prot, int flags) {
    return mmap(at, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static void grown(void) {
    unsigned char *array = touched(larger(NULL, 5 * MB), 5 * MB, 1);
    arrays(60, 4, 15 * MB);
    for (size_t size = 10 * MB; size <= 60 * MB; size += 5 * MB) {
        array = larger(array, size);
        damaged |= *array != 1;
        touched(array + size - 5 * MB, 5 * MB, 2);
    }
    free(array);
}

static void mapped(size_t size) {
    static unsigned char *held[60];
    int count = (int)(60 * MB / size);
    for (int i = 0; i < count; i++) held[i] = touched(map(NULL, size, PROT_READ | PROT_WRITE, 0), size, i);
    for (int i = 0; i < count; i++) check(held[i], size, i), munmap(held[i], size);
}

static void extended(void) {
    unsigned char *p = touched(map(NULL, MIB, PROT_READ | PROT_WRITE, 0), MIB, 1);
    for (size_t size = MIB; size < 57 * MIB; size += MIB) {
        p = mremap(p, size, size + MIB, MREMAP_MAYMOVE);
        touched(p + (p == MAP_FAILED ? 0 : size), MIB, 1);
    }
    check(p, 57 * MIB, 1), munmap(p, 57 * MIB);
}

static void committed(void) {
    unsigned char *p = map(NULL, 57 * MIB, PROT_NONE, MAP_NORESERVE);
    for (size_t at = 0; at < 57 * MIB; at += MIB)
        touched(map(p + at, MIB, PROT_READ | PROT_WRITE, MAP_FIXED), MIB, 1);
    check(p, 57 * MIB, 1), munmap(p, 57 * MIB);
}

static unsigned char *blocks[BLOCKS];

static void mallocs(int from, int to, int zero) {
    for (int i = from; i < to; i++)
        if (!(blocks[i] = zero ? calloc(1, 100) : malloc(100))) exit(3);
        else memset(blocks[i], i, 100);
    for (int i = from; i < to; i++) check(blocks[i], 100, i), free(blocks[i]);
}

static void *thread(void *arg) {
    int part = BLOCKS / THREADS, from = (int)(intptr_t)arg * part;
    return mallocs(from, from + part, 0), NULL;
}

static void threads(void) {
    pthread_t started[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&started[i], NULL, thread, (void *)i)) exit(3);
    for (int i = 0; i < THREADS; i++) pthread_join(started[i], NULL);
}

static void strings(void) {
    for (size_t size = 100; size <= 10000; size += 900)
        for (int i = 0; i < STRINGS; i++)
            if (!(blocks[i] = realloc(blocks[i], size))) exit(3);
            else memset(blocks[i], i, size);
    for (int i = 0; i < STRINGS; i++) check(blocks[i], 10000, i), free(blocks[i]);
}

static void scratch(void) {
    for (int step = 0; step < 200; step++) {
        arrays(1, 4, MB);
        unsigned char *p = touched(map(NULL, MB, PROT_READ | PROT_WRITE, 0), MB, step);
        mallocs(0, 10000, 0);
        check(p, MB, step), munmap(p, MB);
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    static const char *const phases[] = {"mapped", "once", "extended", "committed", "mallocs", "callocs", "threads", "strings"};
    unsigned char *array = NULL;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    long before = used.ru_minflt;
    for (unsigned i = 0; i < sizeof phases / sizeof *phases; i++)
        if (!strcmp(how, phases[i])) arrays(60, 4, 15 * MB);
    if (!strcmp(how, "grown")) grown();
    if (!strcmp(how, "copied")) array = larger(touched(made(12 * MIB), 12 * MIB, 1), 24 * MIB), others();
    if (!strcmp(how, "shrunk")) array = larger(touched(made(24 * MIB), 24 * MIB, 1), 100), others();
    if (!strcmp(how, "foreign")) array = larger(touched(other(12 * MIB), 12 * MIB, 1), 24 * MIB), others();
    if (array) damaged |= *array != 1, free(array);
    if (!strcmp(how, "doubled")) doubled();
    if (!strcmp(how, "nothing")) nothing();
    if (!strcmp(how, "mapped")) mapped(MB);
    if (!strcmp(how, "once")) mapped(60 * MB);
    if (!strcmp(how, "extended")) extended();
    if (!strcmp(how, "committed")) committed();
    if (!strcmp(how, "mallocs")) mallocs(0, BLOCKS, 0);
    if (!strcmp(how, "callocs")) mallocs(0, BLOCKS, 1);
    if (!strcmp(how, "threads")) threads();
    if (!strcmp(how, "strings")) strings();
    if (!strcmp(how, "scratch")) scratch();
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr, "%ld %ld %ld\n", used.ru_minflt - before, status_kib("VmHWM"), status_kib("VmRSS"));
    printf("damaged %d\n", damaged);
    return 0;
}
