/* A library with functions of its own called munmap and madvise: the names are POSIX's, not C's.
 * Names: they do something else (-DNAMES). Arrays from calloc must be zero, and those that are freed unmapped.
 * Lock: they do what the system's do, under a lock (-DLOCK) that is held while the program frees an array */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int own_calls(void);
void drop(void *block);

#ifdef LIBRARY
static int calls;
int own_calls(void) { return calls; }

#ifdef NAMES
double munmap(const char *map) {
    calls += map[0] != 0;
    return calls;
}
int madvise(const char *text) {
    calls += text[0] != 0;
    return 0;
}
void drop(void *block) { free(block); }
#else
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void count(void) {
    pthread_mutex_lock(&lock);
    calls++;
    pthread_mutex_unlock(&lock);
}
int munmap(void *address, size_t length) {
    count();
    return (int)syscall(SYS_munmap, address, length);
}
int madvise(void *address, size_t length, int advice) {
    count();
    return (int)syscall(SYS_madvise, address, length, advice);
}
void drop(void *block) {
    pthread_mutex_lock(&lock);
    free(block);
    pthread_mutex_unlock(&lock);
}
#endif

#else
enum { SMALL = 3 << 20, LARGE = 40 << 20, ROUNDS = 6 };

__attribute__((noinline)) static char *zeroed(size_t n) {
    char *block = calloc(1, n);
    if (!block) exit(3);
    return block;
}

static long peak(void) {
    char line[256];
    long value = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmHWM:", 6)) value = atol(line + 6);
    if (f) fclose(f);
    return value;
}

int main(void) {
    int wrong = 0;
    for (int i = 0; i < 2 * ROUNDS; i++) {
        size_t n = i < ROUNDS ? SMALL : LARGE;
        char *block = zeroed(n);
        for (size_t k = 0; k < n; k += 4096) wrong += block[k] != 0;
        memset(block, 1, n);
        drop(block);
    }
    printf("not zero %d, calls %d, %s\n", wrong, own_calls(), peak() < 2 * LARGE >> 10 ? "unmapped" : "left");
    return 0;
}
#endif
