/* Memory that comes and goes more often than the library can keep it.   turns MODE
 *   arrays    12,000 times one of three call sites allocates 400 KB, writes and frees it, in turn
 *   large     1,200 times one of three call sites allocates 8 MB, in 1 GB of address space (RLIMIT_AS)
 *   sizes     12,000 times one call site allocates 150 to 225 KB, each time another size
 *   cache     60 arrays of 150 to 450 KB stay, and 15,000 times one of them is replaced by another
 *   mixed     as cache, 300 arrays of up to 600 KB, 80,000 times: placing pauses and begins again a few times meanwhile
 *   store     as cache, 500 arrays of 300 to 1,200 KB, of which each page is written once, and a small block beside each
 *   high      800 times one call site allocates three times 20 MB, below small blocks of the first steps that stay
 *   buffers   16 threads, in which each of 80 call sites in turn allocates 15 to 45 KB, 200 times
 *   pinned    300 times 64 arrays of 300 KB that are freed together, and a small block that stays
 *   together  as pinned, 3,000 rows of 16 KB
 *   after     an array of 20 MB of one call site, then 50 times 60 of 300 KB of another one that are freed together
 *   elsewhere 50 times two arrays of 15 MB of one call site, then 30 of 1 MB of another one that stay
 *   steps     600 times 40 arrays of 300 KB that are freed together, below a small block of the second time that stays
 *   fewer     60 arrays of 1 MB, then 1,200 times six of 700 KB, as in steps
 *   small     60 times four arrays of 15 MB that are freed together, then four times 100,000 objects of 500 bytes
 *   middle    as small, then four times 600 of 100 KB
 *   both      30 times eight arrays of 8 MB of one call site that are freed together, then as many of another one
 *   rows      60 times 40,000 objects of 1 KB that are freed together, below a small block of the second time that stays
 *   blocks    as rows, 400 of 100 KB
 *   panels    as rows, 40 of 1 MB
 *   pairs     as steps, 60 times 10,000 of 7 KB, and no small block stays
 *   differ    200 times 200 to 400 blocks of 50 to 150 KB that are freed in any order, below a small block of the first
 *             time that stays
 *   refused   as blocks, and each time malloc is asked for more than there can be; "refused large" as panels
 *   then      10 times 400 blocks of 100 KB that are freed together, then 400 of another call site that stay to the end
 *   late      160 MB are allocated that no rule places, then 20 times 40 arrays of 1 MB that are freed together, then
 *             the former are written
 *   others    20 times 120 arrays of 1 MB that are freed together, then another process writes 250 MB, then as many arrays
 *             by calloc, and once more by malloc
 *   sparse    20 times 100 arrays of 8 MB by calloc, of which one page in 100 is written, that are freed together
 *   tables    400 times four arrays of 30 MB, of which 40 pages are written, others each time, that are freed together
 *   filled    100 times an array of 16 MB of which 8 pages are written, then 2,000 times all of them
 *   seldom    5,000 times an array of 16 MB of which 8 pages are written, each 64th time all of them
 *   children  100 processes, one after the other, that allocate, write and free 100 arrays of 500 KB to 1 MB
 *   parent    20 times 40 arrays of 1 MB that are freed together, then one after the other of three processes does so once,
 *             for which the parent only waits
 *   workers   as parent, 10 processes, each after three more times of the parent
 *   two       60 times an array of 28 MB, then one of 16 MB, each filled and freed, below a small block that stays
 *   servers   2,000 processes, one after the other, before each of which an array of 16 KB and an object of 200 bytes are
 *             written and freed
 * Writes: page faults, the most memory, and the memory after all is freed, KiB. Figures are written to standard
 * error. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sites.h"

enum { THREADS = 16 };
static int damaged;

static struct rusage used(void) {
    struct rusage used, of_children;
    getrusage(RUSAGE_SELF, &used);
    getrusage(RUSAGE_CHILDREN, &of_children);
    used.ru_minflt += of_children.ru_minflt;
    return used;
}

static long resident_kib(void) {
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%*d %ld", &pages) != 1) exit(3);
    fclose(statm);
    return pages * 4;
}

static void brief(int site, size_t size, unsigned char mark) {
    unsigned char *p = sites[site](size);
    if (!p) exit(3);
    memset(p, mark, size);
    if (p[0] != mark || p[size / 2] != mark || p[size - 1] != mark) damaged = 1;
    free(p);
}

static void cache(unsigned held, int times, size_t least, size_t range) {
    static unsigned char *blocks[300];
    unsigned random = 1;
    for (int i = 0; i < times; i++) {
        random = random * 1664525 + 1013904223;
        unsigned char **block = &blocks[(random >> 16) % held];
        size_t size = least + (size_t)i * 7919 % range;
        free(*block);
        if (!(*block = sites[0](size))) exit(3);
        memset(*block, i, size);
    }
    for (unsigned i = 0; i < held; i++) free(blocks[i]);
}

static void touch(unsigned char *p, size_t size, int mark) {
    if (!p) exit(3);
    for (size_t i = 0; i < size; i += 4096) p[i] = (unsigned char)mark;
    p[size - 1] = (unsigned char)mark;
}

static void store(void) {
    static unsigned char *blocks[500], *beside[500];
    unsigned random = 1;
    for (int i = 0; i < 8000; i++) {
        random = random * 1664525 + 1013904223;
        int n = i < 500 ? i : (int)((random >> 16) % 500);
        size_t size = 300000 + (size_t)i * 7919 % 900000;
        free(blocks[n]), free(beside[n]);
        touch(blocks[n] = sites[0](size), size, i);
        if (!(beside[n] = malloc(64))) exit(3);
        memset(beside[n], i, 64);
    }
    for (int n = 0; n < 500; n++) damaged |= *blocks[n] != *beside[n], free(blocks[n]), free(beside[n]);
}

static void high(void) {
    unsigned char *three[3], *small[3] = {NULL, NULL, NULL};
    for (int step = 0; step < 800; step++) {
        for (int i = 0; i < 3; i++) three[i] = sites[0](20000000);
        unsigned char *last = malloc(100000);
        if (step < 3) small[step] = last;
        else free(last);
        for (int i = 0; i < 3; i++) touch(three[i], 20000000, step);
        for (int i = 0; i < 3; i++) damaged |= three[i][4096] != (unsigned char)step, free(three[i]);
    }
    for (int i = 0; i < 3; i++) free(small[i]);
}

static void pinned(int count, int size, int steps) {
    static unsigned char *held[3000];
    void *list = NULL;
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < count; i++) memset(held[i] = sites[0](size), step, size);
        void **record = malloc(56);
        *record = list, list = record;
        for (int i = 0; i < count; i++) damaged |= held[i][size - 1] != (unsigned char)step, free(held[i]);
    }
    for (void *next; list; list = next) next = *(void **)list, free(list);
}

/* `steps` times `count` arrays of one call site, freed together. In step `stays` a small block is allocated above. With
 * `refused`, each step asks for that much in vain, too. */
static void together_but(int site, int steps, int count, size_t size, int stays, size_t refused) {
    static unsigned char *held[100000];
    void *small = NULL;
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < count; i++) touch(held[i] = sites[site](size), size, step);
        if (step == stays && !(small = malloc(56))) exit(3);
        for (int i = 0; i < count; i++) damaged |= held[i][size - 1] != (unsigned char)step, free(held[i]);
        if (refused && (malloc(refused) || calloc(refused, 1) || sites[site](refused))) exit(3);
    }
    free(small);
}

static void together(int site, int steps, int count, size_t size, int stays) {
    together_but(site, steps, count, size, stays, 0);
}

static unsigned below(unsigned bound) {
    static unsigned random = 1;
    random = random * 1664525 + 1013904223;
    return (random >> 8) % bound;
}

static void differ(void) {
    enum { COUNT = 400 };
    static unsigned char *held[COUNT];
    void *small = NULL;
    for (int step = 0; step < 200; step++) {
        int count = step ? COUNT / 2 + (int)below(COUNT / 2) : COUNT;
        for (int i = 0; i < count; i++) {
            size_t size = 50000 + below(100000);
            if (!(held[i] = sites[0](size))) exit(3);
            memset(held[i], i, size);
        }
        if (!small && !(small = malloc(56))) exit(3);
        for (int i = count - 1; i >= 0; i--) {
            int other = (int)below((unsigned)i + 1);
            free(held[other]);
            held[other] = held[i];
        }
    }
    free(small);
}

static void then(void) {
    static unsigned char *held[400];
    together(0, 10, 400, 100000, -1);
    for (int i = 0; i < 400; i++) touch(held[i] = sites[1](100000), 100000, i);
    for (int i = 0; i < 400; i++) damaged |= held[i][0] != (unsigned char)i, free(held[i]);
}

static void late(void) {
    size_t size = 160000000;
    unsigned char *work = malloc(size);
    together(0, 20, 40, 1000000, -1);
    touch(work, size, 1);
    free(work);
}

static void *cleared(size_t size) {
    void *p = calloc(1, size);
    __asm__ volatile("" : : "r"(p) : "memory");
    return p;
}

static void others(const char *self) {
    enum { COUNT = 120, SIZE = 1000000 };
    static unsigned char *held[COUNT];
    together(0, 20, COUNT, SIZE, -1);
    pid_t child = fork();
    if (child == 0) execl(self, self, "take", (char *)NULL), _exit(3);
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child || status) exit(3);
    for (int i = 0; i < COUNT; i++) {
        if (!(held[i] = cleared(SIZE))) exit(3);
        for (int k = 0; k < SIZE; k++) damaged |= held[i][k] != 0;
        held[i][0] = (unsigned char)i;
    }
    for (int i = 0; i < COUNT; i++) damaged |= held[i][0] != (unsigned char)i, free(held[i]);
    together(0, 2, COUNT, SIZE, -1);
}

static void sparse(void) {
    enum { COUNT = 100, SIZE = 8000000, STEP = 100 * 4096 };
    static unsigned char *held[COUNT];
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i < COUNT; i++) {
            if (!(held[i] = cleared(SIZE))) exit(3);
            for (int k = 0; k < SIZE; k += STEP) damaged |= held[i][k] != 0, held[i][k] = (unsigned char)(i + 1);
        }
        for (int i = 0; i < COUNT; i++) damaged |= held[i][SIZE - 1] != 0, free(held[i]);
    }
}

static void filled(int few, int then, int each) {
    enum { SIZE = 16000000, FEW = 8 };
    for (int step = 0; step < few + then; step++) {
        unsigned char *array = sites[0](SIZE);
        if (!array) exit(3);
        int all = step >= few && step % each == 0;
        for (long k = 0; k < SIZE; k += all ? 4096 : SIZE / FEW) array[k] = 1;
        free(array);
    }
}

static void tables(void) {
    enum { COUNT = 4, SIZE = 30000000, PAGES = SIZE / 4096, WRITTEN = 40 };
    unsigned long random = 1;
    for (int step = 0; step < 400; step++) {
        unsigned char *held[COUNT];
        for (int i = 0; i < COUNT; i++) {
            if (!(held[i] = sites[0](SIZE))) exit(3);
            for (int k = 0; k < WRITTEN; k++) {
                random = random * 6364136223846793005ul + 1442695040888963407ul;
                held[i][(random >> 33) % PAGES * 4096] = (unsigned char)(i + 1);
            }
        }
        for (int i = 0; i < COUNT; i++) free(held[i]);
    }
}

static void children(void) {
    for (int n = 0; n < 100; n++) {
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 100; i++) {
                size_t size = 500000 + (size_t)(n * 100 + i) * 7919 % 500000;
                unsigned char *p = sites[0](size);
                touch(p, size, i);
                free(p);
            }
            _exit(0);
        }
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) != child || status) exit(3);
    }
}

/* `processes` forked ones, one after the other, before each of which the parent does its steps again. */
static void forks(int processes, int again) {
    together(0, 20, 40, 1000000, -1);
    for (int n = 0; n < processes; n++) {
        together(0, again, 40, 1000000, -1);
        pid_t child = fork();
        if (child == 0) together(0, 1, 40, 1000000, -1), _exit(damaged);
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) != child || status) exit(3);
    }
}

static void servers(void) {
    for (int n = 0; n < 2000; n++) {
        brief(0, 16000, (unsigned char)n), brief(1, 200, (unsigned char)n);
        pid_t child = fork();
        if (child == 0) _exit(0);
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) != child || status) exit(3);
    }
}

/* Of the sizes in turn; what is in memory is the last array's, whole. */
static void two(void) {
    void *small = NULL;
    for (int step = 0; step < 120; step++) {
        size_t size = step % 2 ? 16000000 : 28000000;
        unsigned char *array = sites[0](size);
        if (!array) exit(3);
        memset(array, step, size);
        if (!small && !(small = malloc(56))) exit(3);
        for (size_t k = 0; k < size; k += 4000) damaged |= array[k] != step;
        damaged |= array[size - 1] != step;
        free(array);
    }
    free(small);
}

static void after(void) {
    unsigned char *held[60];
    brief(0, 20000000, 1);
    for (int step = 0; step < 50; step++) {
        for (int i = 0; i < 60; i++) memset(held[i] = sites[1](300000), step, 300000);
        for (int i = 0; i < 60; i++) damaged |= held[i][299999] != step, free(held[i]);
    }
}

static void elsewhere(void) {
    unsigned char *held[30];
    for (int i = 0; i < 50; i++) {
        held[0] = sites[0](15000000), held[1] = sites[0](15000000);
        memset(held[0], i, 15000000), memset(held[1], i, 15000000);
        free(held[0]), free(held[1]);
    }
    for (int i = 0; i < 30; i++) memset(held[i] = sites[1](1000000), i, 1000000);
    for (int i = 0; i < 30; i++) damaged |= held[i][999999] != i, free(held[i]);
}

static void *thread(void *arg) {
    for (int round = 0; round < 200; round++)
        for (int site = 0; site < 80; site++)
            brief(site, 15000 + (size_t)(round * 37 + site * 101 + (long)arg) % 30000, (unsigned char)site);
    return NULL;
}

static void buffers(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, thread, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    long before = used().ru_minflt;
    if (!strcmp(how, "arrays"))
        for (int i = 0; i < 12000; i++) brief(i % 3, 400000, (unsigned char)i);
    if (!strcmp(how, "large")) {
        struct rlimit limit = {1ul << 30, 1ul << 30};
        setrlimit(RLIMIT_AS, &limit);
        for (int i = 0; i < 1200; i++) brief(i % 3, 8000000, (unsigned char)i);
    }
    if (!strcmp(how, "sizes"))
        for (int i = 0; i < 12000; i++) brief(0, 150000 + (size_t)i * 7919 % 75000, (unsigned char)i);
    if (!strcmp(how, "cache")) cache(60, 15000, 150000, 300000);
    if (!strcmp(how, "mixed")) cache(300, 80000, 1, 600000);
    if (!strcmp(how, "store")) store();
    if (!strcmp(how, "high")) high();
    if (!strcmp(how, "elsewhere")) elsewhere();
    if (!strcmp(how, "pinned")) pinned(64, 300000, 300);
    if (!strcmp(how, "together")) pinned(3000, 16000, 100);
    if (!strcmp(how, "after")) after();
    if (!strcmp(how, "buffers")) buffers();
    if (!strcmp(how, "steps")) together(0, 600, 40, 300000, 1);
    if (!strcmp(how, "fewer")) together(0, 1, 60, 1 << 20, -1), together(0, 1200, 6, 700000, 1);
    if (!strcmp(how, "small")) together(0, 60, 4, 15000000, -1), together(0, 4, 100000, 500, -1);
    if (!strcmp(how, "middle")) together(0, 60, 4, 15000000, -1), together(0, 4, 600, 100000, -1);
    if (!strcmp(how, "both"))
        for (int i = 0; i < 30; i++) together(0, 1, 8, 8000000, -1), together(1, 1, 8, 8000000, -1);
    if (!strcmp(how, "rows")) together(0, 60, 40000, 1000, 1);
    if (!strcmp(how, "blocks")) together(0, 60, 400, 100000, 1);
    if (!strcmp(how, "panels")) together(0, 60, 40, 1000000, 1);
    if (!strcmp(how, "pairs")) together(0, 60, 10000, 7000, -1);
    if (!strcmp(how, "differ")) differ();
    if (!strcmp(how, "refused")) together_but(0, 60, 400, 100000, 1, (size_t)1 << 62);
    if (!strcmp(how, "refused large")) together_but(0, 60, 40, 1000000, 1, (size_t)1 << 62);
    if (!strcmp(how, "then")) then();
    if (!strcmp(how, "late")) late();
    if (!strcmp(how, "others")) others(argv[0]);
    if (!strcmp(how, "take")) return together(1, 1, 250, 1000000, -1), damaged;
    if (!strcmp(how, "sparse")) sparse();
    if (!strcmp(how, "tables")) tables();
    if (!strcmp(how, "filled")) filled(100, 2000, 1);
    if (!strcmp(how, "seldom")) filled(100, 5000, 64);
    if (!strcmp(how, "children")) children();
    if (!strcmp(how, "parent")) forks(3, 0);
    if (!strcmp(how, "workers")) forks(10, 3);
    if (!strcmp(how, "servers")) servers();
    if (!strcmp(how, "two")) two();
    struct rusage after_all = used();
    fprintf(stderr, "%ld %ld %ld\n", after_all.ru_minflt - before, after_all.ru_maxrss, resident_kib());
    printf("damaged %d\n", damaged);
    return 0;
}
