/* argv[1] threads that live at the same time, each with argv[2] malloc and free pairs. */
#include <pthread.h>
#include <stdlib.h>

static pthread_barrier_t all;
static long pairs;

static void *routine(void *arg) {
    for (long i = 0; i < pairs; i++) {
        void *volatile p = malloc(100);
        free(p);
    }
    pthread_barrier_wait(&all);
    return arg;
}

int main(int argc, char **argv) {
    unsigned threads = argc > 1 ? atoi(argv[1]) : 10;
    pairs = argc > 2 ? atol(argv[2]) : 10;
    pthread_t *t = calloc(threads, sizeof *t);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 16);
    pthread_barrier_init(&all, 0, threads + 1);
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&t[i], &small, routine, 0)) abort();
    pthread_barrier_wait(&all);
    for (unsigned i = 0; i < threads; i++) pthread_join(t[i], 0);
    return 0;
}
