// Truth: each of four threads writes the words of its quarter of 64 pages ROUNDS times, and reads them as often. No thread
// begins before all are there: one that began when another had ended would be the same worker again.
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { PAGES = 64, WORDS = PAGES * 512, ROUNDS = 7, THREADS = 4 };

static uint64_t *data;
static pthread_barrier_t all_are_there;

static void *work(void *number) {
    uint64_t *quarter = data + (intptr_t)number * (WORDS / THREADS);
    pthread_barrier_wait(&all_are_there);
    for (int round = 0; round < ROUNDS; round++)
        for (int word = 0; word < WORDS / THREADS; word++)
            quarter[word] += round + 1; // clang leaves out what adds 0
    return NULL;
}

int main(void) {
    data = aligned_alloc(4096, WORDS * sizeof *data);
    pthread_barrier_init(&all_are_there, NULL, THREADS);
#ifdef _OPENMP
#pragma omp parallel for num_threads(THREADS) schedule(static, 1)
    for (intptr_t thread = 0; thread < THREADS; thread++)
        work((void *)thread);
#else
    pthread_t threads[THREADS];
    for (intptr_t thread = 0; thread < THREADS; thread++)
        pthread_create(&threads[thread], NULL, work, (void *)thread);
    for (int thread = 0; thread < THREADS; thread++)
        pthread_join(threads[thread], NULL);
#endif
    return 0;
}
