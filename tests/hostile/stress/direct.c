/* Reads and writes past the page cache (O_DIRECT), from and into blocks of four threads that come and go, and into one
   array that stays; resized between them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 24, PAGE = 4096, KEPT = 2 << 20, PAUSE_US = 4000 };

static int file;
static long damaged, failed;

static void fill(char *p, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++) p[i] = seed + i * 7 + (i >> 8);
}

static long wrong(const char *p, size_t n, unsigned seed) {
    long bad = 0;
    for (size_t i = 0; i < n; i++) bad += p[i] != (char)(seed + i * 7 + (i >> 8));
    return bad;
}

/* Of whole pages, aligned to a page. */
static char *block(unsigned how, size_t n) {
    void *p = 0;
    switch (how % 4) {
    case 0: return posix_memalign(&p, PAGE, n) ? 0 : p;
    case 1: return aligned_alloc(PAGE, n);
    case 2: return memalign(2 * PAGE, n);
    default: return valloc(n);
    }
}

static void *work(void *arg) {
    static const size_t sizes[] = {1, 2, 5, 16, 33, 64, 128, 256};
    long me = (long)arg, bad = 0, lost = 0;
    off_t base = (off_t)me * (8 << 20);
    char *kept = block(0, KEPT);
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t n = sizes[(round + me) % 8] * PAGE;
        char *from = block(round, n), *to = block(round + 1, n);
        fill(from, n, round + me);
        lost += pwrite(file, from, n, base) != (ssize_t)n;
        memset(to, 0x5a, n);
        usleep(PAUSE_US);
        lost += pread(file, to, n, base) != (ssize_t)n;
        bad += wrong(to, n, round + me);
        free(from);
        /* Part of a block at the place where it was. */
        lost += pread(file, to + n - PAGE, PAGE, base) != PAGE;
        bad += wrong(to + n - PAGE, PAGE, round + me);
        to = realloc(to, round % 2 ? 2 * n : n - PAGE + 1);
        bad += wrong(to, n - PAGE, round + me);
        free(to);
        fill(kept, KEPT, round * me);
        lost += pwrite(file, kept, KEPT, base + (4 << 20)) != KEPT;
        memset(kept, 0, KEPT);
        lost += pread(file, kept, KEPT, base + (4 << 20)) != KEPT;
        bad += wrong(kept, KEPT, round * me);
    }
    free(kept);
    __atomic_fetch_add(&damaged, bad, __ATOMIC_RELAXED);
    __atomic_fetch_add(&failed, lost, __ATOMIC_RELAXED);
    return 0;
}

int main(void) {
    pthread_t t[THREADS];
    file = open(".", O_TMPFILE | O_RDWR | O_DIRECT, 0600);
    if (file < 0 && (errno == EINVAL || errno == EOPNOTSUPP)) return puts("the file system refuses O_DIRECT"), 0;
    if (file < 0) return perror("open"), 3;
    for (long i = 0; i < THREADS; i++) pthread_create(&t[i], 0, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], 0);
    printf("%d threads, failed %ld, damaged %ld\n", THREADS, failed, damaged);
    return 0;
}
