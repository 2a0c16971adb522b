/* Memory that the heaps of many rules keep, and what keeping none would cost.   slack many N | sparse | shared N | list |
 *                                                                                buffers N | queue | lists N
 *   many N    eight threads, each of which uses N call sites in turn: 400 small objects of which all but the first 16
 *             are freed; then frees those. Writes: resident KiB before, at the end of the rounds, and after all are freed
 *   sparse    1,000 tables of 100 KB from calloc, of which every 16th page is written; writes: resident KiB then. Fills and
 *             frees them, and checks that new ones are zero
 *   shared N  N threads replace rows of 16 to 400 bytes by others, 48 MiB in all; writes: resident KiB at the end
 *   list      40 times a list of 20 MiB is built and freed; writes: page faults and ms of CPU time of all but the first
 *             ten
 *   buffers N 1,000 times each of N call sites allocates a buffer of 100 to 50,000 bytes, fills and frees it
 *   queue     a queue that 1,000 times grows to 1,800 objects of 1,000 bytes and shrinks to 200
 *   lists N   50 times each of N call sites builds and frees a list of 1 MB; these three write: page faults
 * Figures are written to standard error. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "sites.h"
#include "status.h"

enum { THREADS = 8 };

static int damaged, rules = SITES;

static unsigned char *filled(int site, size_t size, unsigned char mark) {
    unsigned char *p = sites[site](size);
    if (!p) exit(3);
    memset(p, mark, size);
    return p;
}

static void drop(unsigned char *p, size_t size, unsigned char mark) {
    if (p && (p[0] != mark || p[size / 2] != mark || p[size - 1] != mark)) damaged = 1;
    free(p);
}

static unsigned below(unsigned *state, unsigned n) {
    *state = *state * 1103515245 + 12345;
    return (*state >> 8) % n;
}

static pthread_barrier_t done;

static void *many(void *arg) {
    enum { OBJECTS = 400, SIZE = 700, STAY = 16 };
    static unsigned char *kept[THREADS][SITES][STAY];
    unsigned char *held[OBJECTS], mark = (unsigned char)(long)arg;
    for (int round = 0; round < 4; round++)
        for (int rule = 0; rule < rules; rule++) {
            for (int i = 0; i < OBJECTS; i++) held[i] = filled(rule, SIZE, mark);
            for (int i = 0; i < STAY; i++) {
                drop(kept[(long)arg][rule][i], SIZE, mark);
                kept[(long)arg][rule][i] = held[i];
            }
            for (int i = STAY; i < OBJECTS; i++) drop(held[i], SIZE, mark);
        }
    pthread_barrier_wait(&done);
    pthread_barrier_wait(&done);
    for (int rule = 0; rule < rules; rule++)
        for (int i = 0; i < STAY; i++) drop(kept[(long)arg][rule][i], SIZE, mark);
    return NULL;
}

static void run_many(void) {
    pthread_t t[THREADS];
    long before = status("VmRSS:");
    pthread_barrier_init(&done, NULL, THREADS + 1);
    for (long i = 0; i < THREADS; i++) pthread_create(&t[i], NULL, many, (void *)i);
    pthread_barrier_wait(&done);
    long with = status("VmRSS:");
    pthread_barrier_wait(&done);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    fprintf(stderr, "%ld %ld %ld\n", before, with, status("VmRSS:"));
}

__attribute__((noinline)) static unsigned char *zeroed(size_t n) {
    unsigned char *p = calloc(n, 1);
    if (!p) exit(3);
    return p;
}

static void sparse(void) {
    enum { TABLES = 1000, BYTES = 100000, STEP = 16 << 12 };
    static unsigned char *table[TABLES];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < TABLES; i++) {
            table[i] = zeroed(BYTES);
            for (int at = 0; at < BYTES; at += STEP) table[i][at] = 1;
        }
        if (round == 0) fprintf(stderr, "%ld\n", status("VmRSS:"));
        for (int i = 0; i < TABLES; i++) {
            for (int at = 0; at < BYTES; at++) damaged |= table[i][at] != (at % STEP == 0);
            if (round < 2) memset(table[i], 0xff, i % 3 ? BYTES / 2 : 16);
        }
        for (int i = 0; i < TABLES; i++) free(table[i]);
    }
}

static int sharers = 1;

static void *share(void *arg) {
    enum { BYTES = 48 << 20, SMALLEST = 16, LARGEST = 400 };
    unsigned state = 1 + (unsigned)(long)arg;
    int slots = BYTES / ((SMALLEST + LARGEST) / 2) / sharers;
    unsigned char **row = calloc(slots, sizeof *row);
    size_t *size = calloc(slots, sizeof *size);
    if (!row || !size) exit(3);
    for (long i = 0; i < 8L * slots; i++) {
        int slot = below(&state, slots);
        drop(row[slot], size[slot], slot);
        size[slot] = SMALLEST + below(&state, LARGEST - SMALLEST);
        row[slot] = filled(0, size[slot], slot);
    }
    pthread_barrier_wait(&done);
    pthread_barrier_wait(&done);
    for (int i = 0; i < slots; i++) drop(row[i], size[i], i);
    free(row);
    free(size);
    return NULL;
}

static void run_shared(void) {
    pthread_t t[THREADS];
    pthread_barrier_init(&done, NULL, sharers + 1);
    for (long i = 0; i < sharers; i++) pthread_create(&t[i], NULL, share, (void *)i);
    pthread_barrier_wait(&done);
    fprintf(stderr, "%ld\n", status("VmRSS:"));
    pthread_barrier_wait(&done);
    for (int i = 0; i < sharers; i++) pthread_join(t[i], NULL);
}

struct node {
    struct node *next;
    unsigned char rest[492];
};

static double spent(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static long faults(void) {
    struct rusage now;
    getrusage(RUSAGE_SELF, &now);
    return now.ru_minflt;
}

static void list(void) {
    enum { NODES = (20 << 20) / sizeof(struct node), STEPS = 40, WARM = 10 };
    double started = 0;
    long before = 0;
    for (int step = 0; step < STEPS; step++) {
        struct node *first = NULL;
        if (step == WARM) started = spent(), before = faults();
        for (int i = 0; i < NODES; i++) {
            struct node *node = (struct node *)filled(0, sizeof *node, step + i);
            node->next = first;
            first = node;
        }
        for (int i = NODES - 1; first; i--) {
            struct node *next = first->next;
            damaged |= first->rest[250] != (unsigned char)(step + i);
            free(first);
            first = next;
        }
    }
    fprintf(stderr, "%ld %.1f\n", faults() - before, spent() - started);
}

static void buffers(void) {
    unsigned state = 1;
    for (int round = 0; round < 1000; round++)
        for (int i = 0; i < rules; i++) {
            size_t size = 100 + below(&state, 49900);
            drop(filled(i, size, round), size, round);
        }
}

static void queue(void) {
    enum { MOST = 2000, SIZE = 1000 };
    static unsigned char *held[MOST];
    unsigned long head = 0, tail = 0;
    for (int burst = 0; burst < 1000; burst++) {
        for (; head - tail < MOST * 9 / 10; head++) held[head % MOST] = filled(0, SIZE, head);
        for (; head - tail > MOST / 10; tail++) drop(held[tail % MOST], SIZE, tail);
    }
    for (; tail < head; tail++) drop(held[tail % MOST], SIZE, tail);
}

static void lists(void) {
    enum { OBJECTS = 1000, SIZE = 1000 };
    unsigned char *held[OBJECTS];
    void *volatile behind = NULL;
    for (int step = 0; step < 50; step++)
        for (int i = 0; i < rules; i++) {
            for (int j = 0; j < OBJECTS; j++) held[j] = filled(i, SIZE, step + j);
            /* Without a block behind the first list glibc gives the pages back, too. */
            if (!behind) behind = malloc(SIZE);
            for (int j = 0; j < OBJECTS; j++) drop(held[j], SIZE, step + j);
        }
    free(behind);
}

static void count_faults(void (*work)(void), int number) {
    rules = number < SITES ? number : SITES;
    long before = faults();
    work();
    fprintf(stderr, "%ld\n", faults() - before);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    const char *space = strchr(how, ' ');
    int number = space ? atoi(space) : argc > 2 ? atoi(argv[2]) : 1;
    if (!strncmp(how, "many", 4)) {
        rules = number < SITES ? number : SITES;
        run_many();
    }
    if (!strncmp(how, "shared", 6)) {
        sharers = number < THREADS ? number : THREADS;
        run_shared();
    }
    if (!strcmp(how, "sparse")) sparse();
    if (!strcmp(how, "list")) list();
    if (!strncmp(how, "buffers", 7)) count_faults(buffers, number);
    if (!strcmp(how, "queue")) count_faults(queue, 1);
    if (!strncmp(how, "lists", 5)) count_faults(lists, number);
    printf("damaged %d\n", damaged);
    return 0;
}
