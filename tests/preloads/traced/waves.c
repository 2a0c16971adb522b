/* Threads in waves: each thread writes once by 3072 instructions to each of 16 pages of its own and ends, so that the
 * memory of its counters is needed again at once. */
#include <pthread.h>

enum { PAGE = 4096, PAGES = 16, THREADS = 12, WAVES = 8 };
#define FOUR(statement) statement statement statement statement

static volatile char waves[THREADS][PAGES * PAGE] __attribute__((aligned(PAGE)));

static void *work(void *own) {
    for (int page = 0; page < PAGES; page++) {
        volatile char *at = (volatile char *)own + page * PAGE;
        FOUR(FOUR(FOUR(FOUR(FOUR(*at = 1; *at = 2; *at = 3;)))))
    }
    return 0;
}

int main(void) {
    for (int wave = 0; wave < WAVES; wave++) {
        pthread_t threads[THREADS];
        for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], 0, work, (void *)waves[n]);
        for (int n = 0; n < THREADS; n++) pthread_join(threads[n], 0);
    }
    return 0;
}
