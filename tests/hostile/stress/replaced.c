/* replaced N   N threads have 60 arrays of 128 to 400 KiB each and replace one of them 600 times by another of another
 * size, which is written and checked. To standard error: page faults. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { ARRAYS = 60, TIMES = 600, PAGE = 4096, LEAST = 128 << 10, MORE = 272 << 10 };
static atomic_int damaged;
static pthread_barrier_t all;

__attribute__((noinline, noclone)) static unsigned char *array(size_t bytes) {
    unsigned char *p = malloc(bytes);
    if (!p)
        abort();
    return p;
}

static void *work(void *arg) {
    struct {
        unsigned char *at;
        size_t bytes;
    } have[ARRAYS] = {0};
    unsigned state = 77 + (unsigned)(long)arg;
    pthread_barrier_wait(&all);
    for (int i = 0; i < ARRAYS + TIMES; i++) {
        state = state * 1103515245 + 12345;
        int at = i < ARRAYS ? i : (int)((state >> 8) % ARRAYS);
        for (size_t k = 0; k < have[at].bytes; k += PAGE)
            damaged |= have[at].at[k] != (unsigned char)(have[at].bytes + k / PAGE);
        free(have[at].at);
        have[at].bytes = LEAST + (state >> 4) % MORE;
        have[at].at = array(have[at].bytes);
        for (size_t k = 0; k < have[at].bytes; k += PAGE) have[at].at[k] = (unsigned char)(have[at].bytes + k / PAGE);
    }
    pthread_barrier_wait(&all);
    for (int i = 0; i < ARRAYS; i++) free(have[i].at);
    return NULL;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    pthread_t ids[64];
    if (threads > 64)
        return 2;
    pthread_barrier_init(&all, NULL, (unsigned)threads);
    for (long t = 0; t < threads; t++)
        if (pthread_create(&ids[t], NULL, work, (void *)t))
            return 3;
    for (int t = 0; t < threads; t++) pthread_join(ids[t], NULL);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr, "%ld\n", used.ru_minflt);
    printf("damaged %d\n", damaged);
}
