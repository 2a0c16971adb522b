/* Scenes whose traffic is known line by line, for the test of the meter. The caches that the test asks for: 64 KiB for
 * each CPU and 128 KiB for each node of two.
 *
 * truth SCENE      prints `object NAME ADDRESS BYTES` for what it accesses
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NODES = 4, CPUS = 8, LINE = 64, KIB = 1024, BIND = 2, MOVE = 2 };

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) exit(3);
}

/* Memory on a node, with no line accessed by this program yet. */
static char *on(int node, size_t bytes, const char *name) {
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long mask = 1ul << node;
    if (p == MAP_FAILED || syscall(SYS_mbind, p, bytes, BIND, &mask, 65, 0) != 0) exit(3);
    if (madvise(p, bytes, MADV_POPULATE_WRITE) != 0) exit(3);
    if (name) printf("object %s %zu %zu\n", name, (size_t)p, bytes);
    return p;
}

static void store_all(char *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += LINE) *(volatile char *)(p + i) = 1;
}
static void load_all(const char *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i += LINE) (void)*(const volatile char *)(p + i);
}

static pthread_barrier_t barrier;
static void threads(void *(*work)(void *)) {
    pthread_t id[CPUS];
    pthread_barrier_init(&barrier, NULL, CPUS);
    for (long t = 0; t < CPUS; t++) pthread_create(&id[t], NULL, work, (void *)t);
    for (long t = 0; t < CPUS; t++) pthread_join(id[t], NULL);
}

/* matrix: from CPU 2j the memory of node k: (4j + k + 4) * 64 KiB are stored to once and loaded twice. */
static void matrix(void) {
    for (int j = 0; j < NODES; j++)
        for (int k = 0; k < NODES; k++) {
            size_t bytes = (4 * j + k + 4) * 64 * KIB;
            pin(2 * j);
            char *p = on(k, bytes, NULL);
            store_all(p, bytes);
            load_all(p, bytes);
            load_all(p, bytes);
        }
}

/* resident: 16 KiB stay in the second level, 96 KiB in the last one. */
static void resident(void) {
    pin(1);
    char *small = on(2, 16 * KIB, "small"), *large = on(3, 96 * KIB, "large");
    for (int i = 0; i < 500; i++) load_all(small, 16 * KIB);
    for (int i = 0; i < 100; i++) load_all(large, 96 * KIB);
}

/* objects: `often` is walked through three times and `once` one time; a third of each is on the own node 1. */
static void objects(void) {
    pin(3);
    char *often = on(1, 3072 * KIB, "often"), *once = on(1, 3072 * KIB, "once");
    unsigned long away = 1ul << 3;
    syscall(SYS_mbind, often + 1024 * KIB, 2048 * KIB, BIND, &away, 65, MOVE);
    syscall(SYS_mbind, once + 1024 * KIB, 2048 * KIB, BIND, &away, 65, MOVE);
    for (int i = 0; i < 3; i++) load_all(often, 3072 * KIB);
    load_all(once, 3072 * KIB);
}

/* window: only `phase` is to be counted. */
static char *windowed;
__attribute__((noinline)) static void phase(void) { load_all(windowed, 512 * KIB); __asm__ volatile(""); }
__attribute__((noinline)) static void after(void) { store_all(windowed, 2048 * KIB); __asm__ volatile(""); }
static void window(void) {
    pin(0);
    windowed = on(2, 2048 * KIB, "windowed");
    store_all(windowed, 2048 * KIB);
    phase();
    after();
}

/* ping: two CPUs of different nodes store to one line in turn. */
enum { TURNS = 400 };
static volatile int *line;
static void *pong(void *arg) {
    int me = (int)(long)arg;
    pin(me == 0 ? 0 : 6);
    for (int i = me; i < TURNS; i += 2) {
        while (*line != i) __builtin_ia32_pause();
        *line = i + 1;
    }
    return NULL;
}
static void ping(void) {
    pthread_t other;
    line = (volatile int *)on(1, 4 * KIB, "line");
    pthread_create(&other, NULL, pong, (void *)1);
    pong(0);
    pthread_join(other, NULL);
}

/* turns: in each of eight rounds another thread works ten times as long, and all wait for it; alone: the same work
 * without waiting. */
static int rounds_meet;
static void unit(int times) {
    for (volatile int i = 0; i < times * 4000; i++) {}
}
static void *round_after_round(void *arg) {
    int me = (int)(long)arg;
    pin(me);
    pthread_barrier_wait(&barrier);
    for (int r = 0; r < 2 * CPUS; r++) {
        unit(r % CPUS == me ? 10 : 1);
        if (rounds_meet) pthread_barrier_wait(&barrier);
    }
    return NULL;
}

/* queue: every CPU loads 2 MiB in sequence, all from node 0 or each from its own node. */
static char *parts[CPUS];
__attribute__((noinline)) static void *stream(void *arg) {
    int me = (int)(long)arg;
    pin(me);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 4; i++) load_all(parts[me], 2048 * KIB);
    return NULL;
}
static void queue(int own) {
    for (int i = 0; i < CPUS; i++) parts[i] = on(own ? i / 2 : 0, 2048 * KIB, NULL);
    threads(stream);
}

/* chase: one CPU of node 0 follows pointers through 4 MiB of a node, every line once, in an order without sequences. */
enum { N = 65536 };
__attribute__((noinline)) static uint64_t follow(const volatile uint64_t *p) {
    uint64_t at = 0;
    for (int i = 0; i < N; i++) at = p[at];
    return at;
}
static void chase(int node) {
    pin(0);
    uint64_t *p = (uint64_t *)on(node, N * LINE, "chased");
    for (uint64_t i = 0; i < N; i++) p[i * 8] = (i + 40503) % N * 8;
    if (follow(p) != 0) exit(4);
}

int main(int argc, char **argv) {
    const char *scene = argc > 1 ? argv[1] : "";
    if (!strcmp(scene, "matrix")) matrix();
    else if (!strcmp(scene, "resident")) resident();
    else if (!strcmp(scene, "objects")) objects();
    else if (!strcmp(scene, "window")) window();
    else if (!strcmp(scene, "ping")) ping();
    else if (!strcmp(scene, "turns")) rounds_meet = 1, threads(round_after_round);
    else if (!strcmp(scene, "alone")) threads(round_after_round);
    else if (!strcmp(scene, "queue")) queue(0);
    else if (!strcmp(scene, "own")) queue(1);
    else if (!strcmp(scene, "chase")) chase(argc > 2 ? atoi(argv[2]) : 0);
    else return 2;
    return 0;
}
