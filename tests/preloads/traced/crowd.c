/* Threads that write by 1024 instructions to each of 16 pages of their own, begin and end together: the
 * tables with their counters take more than a third of 64 MiB, however small they are. */
#include <pthread.h>

enum { PAGE = 4096, PAGES = 16, THREADS = 160 };
#define FOUR(statement) statement statement statement statement

static volatile char crowd[THREADS][PAGES * PAGE] __attribute__((aligned(PAGE)));
static pthread_barrier_t barrier;

static void *work(void *own) {
    *(volatile char *)own = 1;
    pthread_barrier_wait(&barrier);
    for (int page = 0; page < PAGES; page++) {
        volatile char *at = (volatile char *)own + page * PAGE;
        FOUR(FOUR(FOUR(FOUR(FOUR(*at = 1;)))))
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
