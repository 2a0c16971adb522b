/* Small objects of many sizes, freed again: how much memory the process takes.
 *   rows "grow|mixed|rules|threads|cross|rest [MIB]"   with 8 MiB of objects at a time, or MIB
 *   grow     tables of rows, each table with larger rows than the one before, one table at a time
 *   mixed    rows of random sizes that replace each other, in a phase of short rows and a phase of long ones
 *   rules    200 call sites in turn, each with rows of growing sizes
 *   threads  as grow, in four threads
 *   cross    as grow, each table allocated by one thread and freed by another
 *   rest     60 tables with more rows or fewer than the one before, 12 large ones, while one row of the first one stays
 * Writes to standard error: resident KiB before the first row, at the peak, and after all rows are freed. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sites.h"
#include "status.h"

enum { THREADS = 4, SMALLEST = 24, LARGEST = 4000 };

static size_t live;
static int damaged;

static void *row(size_t size, int site, unsigned char mark) {
    unsigned char *p = sites[site](size);
    if (!p) exit(3);
    memset(p, mark, size);
    return p;
}

static void drop(unsigned char *p, size_t size, unsigned char mark) {
    if (p && (p[0] != mark || p[size / 2] != mark || p[size - 1] != mark)) damaged = 1;
    free(p);
}

static size_t next_size(size_t size) { return size + size / 4 + 8; }

struct table {
    void **rows;
    size_t count, size;
};

static struct table fill(size_t bytes, size_t size, int rules) {
    struct table t = {malloc(bytes / size * sizeof(void *)), bytes / size, size};
    if (!t.rows) exit(3);
    for (size_t i = 0; i < t.count; i++) t.rows[i] = row(size, rules ? i % SITES : 0, size);
    return t;
}

static void empty(struct table t) {
    for (size_t i = 0; i < t.count; i++) drop(t.rows[i], t.size, t.size);
    free(t.rows);
}

static void grow(size_t bytes, int rules) {
    for (size_t size = SMALLEST; size <= LARGEST; size = next_size(size)) empty(fill(bytes, size, rules));
}

static void mixed(void) {
    enum { SLOTS = 40000 };
    static unsigned char *rows[SLOTS];
    static size_t sizes[SLOTS];
    unsigned long random = 88172645463325252;
    for (size_t most = 200; most <= LARGEST; most *= 4) {
        for (long i = 0; i < 8 * SLOTS; i++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            size_t slot = random % SLOTS;
            drop(rows[slot], sizes[slot], slot);
            sizes[slot] = 1 + (random >> 32) % most;
            rows[slot] = row(sizes[slot], slot % 4, slot);
        }
    }
    for (size_t slot = 0; slot < SLOTS; slot++) drop(rows[slot], sizes[slot], slot);
}

static void *thread(void *arg) {
    grow(live / THREADS, 0);
    return arg;
}

static struct table passed[2];
static sem_t full, vacant;

static void *consumer(void *arg) {
    for (int i = 0;; i++) {
        sem_wait(&full);
        struct table t = passed[i % 2];
        if (!t.rows) return arg;
        empty(t);
        sem_post(&vacant);
    }
}

static void cross(void) {
    pthread_t t;
    int i = 0;
    sem_init(&full, 0, 0);
    sem_init(&vacant, 0, 1);
    pthread_create(&t, NULL, consumer, NULL);
    for (size_t size = SMALLEST; size <= LARGEST; size = next_size(size)) {
        struct table table = fill(live / 2, size, 0);
        sem_wait(&vacant);
        passed[i++ % 2] = table;
        sem_post(&full);
    }
    sem_wait(&vacant);
    passed[i % 2].rows = NULL;
    sem_post(&full);
    pthread_join(t, NULL);
}

static void rest(void) {
    unsigned char *stays = row(100, 0, 1);
    int tables = live > 8 << 20 ? 12 : 60;
    for (int i = 0; i < tables; i++) empty(fill(live + live / 2 * (i % 3), 100, 0));
    if (stays[0] != 1) damaged = 1;
}

int main(int argc, char **argv) {
    char how[16] = "grow";
    size_t mib = 8;
    if (argc > 1 && sscanf(argv[1], "%15s %zu", how, &mib) < 1) return 2;
    live = mib << 20;
    long before = status("VmRSS:");
    pthread_t threads[THREADS];
    if (!strcmp(how, "grow")) grow(live, 0);
    if (!strcmp(how, "mixed")) mixed();
    // Otherwise glibc keeps up to twice the largest block at the end of its heap, more or less by chance.
    if (!strcmp(how, "rules")) mallopt(M_TRIM_THRESHOLD, 128 << 10), grow(live / 2, 1);
    if (!strcmp(how, "cross")) cross();
    if (!strcmp(how, "rest")) rest();
    if (!strcmp(how, "threads")) {
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, thread, NULL);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    }
    fprintf(stderr, "%ld %ld %ld\n", before, status("VmHWM:"), status("VmRSS:"));
    printf("damaged %d\n", damaged);
    return 0;
}
