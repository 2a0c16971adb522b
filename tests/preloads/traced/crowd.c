/* Threads that write by 4096 instructions to each of 16 pages of their own, and end together: their counters take more
 * than 64 MiB. */
#include <pthread.h>

enum { PAGE = 4096, PAGES = 16, THREADS = 32 };
#define FOUR(statement) statement statement statement statement

static volatile char crowd[THREADS][PAGES * PAGE] __attribute__((aligned(PAGE)));
static pthread_barrier_t barrier;

static void *work(void *own) {
    for (int page = 0; page < PAGES; page++) {
        volatile char *at = (volatile char *)own + page * PAGE;
        FOUR(FOUR(FOUR(FOUR(FOUR(FOUR(*at = 1;))))))
    }
    pthread_barrier_wait(&barrier);
    return 0;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, 0, THREADS);
    for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], 0, work, (void *)crowd[n]);
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], 0);
    return 0;
}
