// Truth: main writes 256 pages 100 times, then makes two threads that read all of them for 300 ms, as main does itself.
#include <pthread.h>
#include <stdint.h>
#include <time.h>

enum { WORDS = 256 * 512 };
static uint64_t table[WORDS] __attribute__((aligned(4096)));

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

static void *reads(void *result) {
    uint64_t sum = 0;
    for (double end = seconds() + 0.3; seconds() < end;)
        for (int word = 0; word < WORDS; word++)
            sum += table[word];
    *(uint64_t *)result = sum;
    return 0;
}

int main(void) {
    for (int pass = 1; pass <= 100; pass++)
        for (int word = 0; word < WORDS; word++)
            ((volatile uint64_t *)table)[word] = pass;
    pthread_t threads[2];
    uint64_t sums[2], own;
    for (int n = 0; n < 2; n++)
        pthread_create(&threads[n], 0, reads, &sums[n]);
    reads(&own);
    for (int n = 0; n < 2; n++)
        pthread_join(threads[n], 0);
    return sums[0] == 0 || sums[1] == 0 || own == 0;
}
