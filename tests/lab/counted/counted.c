/* Allocates as programs do, on a machine that counts all that is mapped (vm.overcommit_memory 2), and says how many
 * allocations failed, and on standard error, for each size, how many blocks there were before one failed.
 * Needs a machine with 1 GiB or more to map. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, THREADS = 8, STEPS = 300, SLOTS = 16, MOST = 1 << 16, PLAIN_THREADS = 40, ROUNDS = 2 };

static long failed;
static void *blocks[MOST];

static void fail(const char *what) {
    __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "%s failed\n", what);
}

/* KiB of this process that the machine counts: areas with `ac` in VmFlags. */
static long counted(void) {
    static char line[512];
    long size = 0, sum = 0;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        sscanf(line, "Size: %ld", &size);
        if (!strncmp(line, "VmFlags:", 8) && strstr(line, " ac")) sum += size;
    }
    if (f) fclose(f);
    return sum;
}

/* Blocks of many sizes that come, change and go. */
static void *work(void *arg) {
    static const size_t sizes[] = {100, 3000, 20000, 130000, 400000, MIB, 3 * MIB};
    unsigned state = (unsigned)(long)arg + 1;
    char *slots[SLOTS] = {0};
    for (int i = 0; i < STEPS; i++) {
        state = state * 1664525 + 1013904223;
        unsigned r = state >> 8, slot = r % SLOTS;
        size_t n = sizes[r / SLOTS % 7];
        char *p = r & 1 << 20 ? realloc(slots[slot], n) : malloc(n);
        if (!p) {
            fail("malloc");
            continue;
        }
        if (!(r & 1 << 20)) free(slots[slot]);
        slots[slot] = p;
        memset(p, i, n < 20000 ? n : 20000);
        p[n - 1] = i;
    }
    for (int i = 0; i < SLOTS; i++) free(slots[i]);
    return 0;
}

/* Blocks until one fails, none of which is written to beyond its first bytes; they are freed again. */
static void until_none(size_t size) {
    int n = 0;
    while (n < MOST && (blocks[n] = malloc(size))) *(int *)blocks[n] = n, n++;
    long wrong = 0;
    for (int i = 0; i < n; i++) wrong += *(int *)blocks[i] != i, free(blocks[i]);
    fprintf(stderr, "blocks %d\n", n);
    if (wrong) fail("a block");
}

static void *nothing(void *arg) { return arg; }

int main(void) {
    pthread_t t[PLAIN_THREADS];
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&t[i], 0, work, (void *)i)) fail("pthread_create");
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], 0);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t size = 64 << 10; size <= 64 << 20; size *= 8) until_none(size);
    /* A child counts as much as its parent. */
    char *large = malloc(300 * MIB);
    if (!large) fail("300 MiB");
    else memset(large, 1, MIB);
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0) _exit(large && large[i] == 1 ? 0 : 1);
        int status = -1;
        if (child < 0 || waitpid(child, &status, 0) < 0 || status) fail("fork");
    }
    free(large);
    for (int i = 0; i < PLAIN_THREADS; i++)
        if (pthread_create(&t[i], 0, nothing, 0)) fail("pthread_create");
    for (int i = 0; i < PLAIN_THREADS; i++) pthread_join(t[i], 0);
    void *reserved = mmap(0, 64UL << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) fail("mmap of what is not counted");
    fprintf(stderr, "counted %ld\n", counted());
    printf("failed %ld\n", failed);
    return 0;
}
