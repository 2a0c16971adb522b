/* What the policies of the fuzzer are about: globals, call sites of every kind, a thread. Its output never changes. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

char table[1 << 16] = {1}, zeroes[1 << 18];
static char hidden[5 << 12];

__attribute__((noinline)) static char *make(size_t n) { return memset(malloc(n), 3, n); }
__attribute__((noinline)) static char *grow(char *p, size_t n) { p = realloc(p, n); return p; }

static void *work(void *arg) {
    char *p = make(30000);
    *(long *)arg = p[29999] + malloc_usable_size(p) / 30000;
    return p;
}

int main(void) {
    long sum = 0;
    pthread_t t;
    void *p;
    if (pthread_create(&t, NULL, work, &sum) || pthread_join(t, &p)) return 1;
    free(p);
    for (size_t n = 24; n < 3000000; n *= 5) {
        char *a = grow(make(n), n * 2), *b = calloc(n, 1), *c = memalign(4096, n);
        sum += a[n - 1] + b[n - 1];
        memset(c, 1, n);
        free(a), free(b), free(c);
    }
    char *m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(m, 2, 1 << 20);
    memset(zeroes + 4096, 1, 9000);
    hidden[7000] = 5;
    for (size_t i = 0; i < sizeof zeroes; i += 64) sum += zeroes[i] + table[i % sizeof table] + hidden[i % sizeof hidden];
    printf("%ld %d\n", sum, m[77777]);
    return 5;
}
