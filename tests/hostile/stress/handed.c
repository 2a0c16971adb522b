/* Threads put new small blocks into shared slots, and free what was there, whoever allocated it: more threads than CPUs
 * turn over all of the blocks in each of their time slices.
 * usage: handed THREADS   standard error: page faults, peak KiB; standard output: "damaged N". */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SLOTS = 10000, BLOCKS = 3000000, MOST = 500 };
static _Atomic(unsigned char *) slots[SLOTS];
static atomic_long damaged;
static long each;

__attribute__((noinline)) static unsigned char *made(size_t size, unsigned char mark) {
    unsigned char *block = malloc(size);
    if (!block) abort();
    block[0] = block[size - 1] = mark;
    memcpy(block + 1, &size, sizeof size);
    return block;
}

static void freed(unsigned char *block) {
    size_t size;
    if (!block) return;
    memcpy(&size, block + 1, sizeof size);
    if (size > MOST + 16 || block[0] != block[size - 1]) damaged++;
    free(block);
}

static void *work(void *number) {
    unsigned long state = (unsigned long)number + 1;
    for (long i = 0; i < each; i++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        unsigned char *block = made(16 + (state >> 33) % MOST, (unsigned char)(state >> 40));
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        freed(atomic_exchange(&slots[(state >> 33) % SLOTS], block));
    }
    return NULL;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 8;
    pthread_t *team = calloc((size_t)threads, sizeof *team);
    each = BLOCKS / threads;
    for (long t = 0; t < threads; t++)
        if (pthread_create(&team[t], NULL, work, (void *)t)) abort();
    for (long t = 0; t < threads; t++) pthread_join(team[t], NULL);
    for (long i = 0; i < SLOTS; i++) freed(atomic_exchange(&slots[i], NULL));
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr, "%ld %ld", used.ru_minflt, used.ru_maxrss);
    printf("damaged %ld\n", atomic_load(&damaged));
    return 0;
}
