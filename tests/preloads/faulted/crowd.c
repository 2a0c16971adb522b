/* Threads work on blocks of one array for a number of rounds, while children are forked and memory comes and goes; only
   thread i uses the pages of block i. */
#include "window.h"

enum { THREADS = 4, BLOCK = 256, ROUNDS = 300 };

uint64_t blocks[THREADS * BLOCK * PAGE / 8] __attribute__((aligned(4096)));
static size_t failures[THREADS];

static void *work(void *which) {
    size_t id = (size_t)which;
    uint64_t *mine = blocks + id * BLOCK * PAGE / 8;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < BLOCK * PAGE / 8; i++) {
            failures[id] += mine[i] != round;
            mine[i] = round + 1;
        }
        size_t pages = 1 + round % 40;
        uint64_t *short_lived = filled(pages);
        short_lived = mremap(short_lived, pages * PAGE, (pages + 300) * PAGE, MREMAP_MAYMOVE);
        failures[id] += short_lived == MAP_FAILED || hurt(short_lived, 0, pages) != 0;
        munmap(short_lived, (pages + 300) * PAGE);
        /* libc's own mremap */
        uint64_t *block = malloc((64 + pages) * PAGE);
        for (size_t i = 0; i < (64 + pages) * PAGE / 8; i++)
            block[i] = i;
        block = realloc(block, (200 + pages) * PAGE);
        for (size_t i = 0; i < (64 + pages) * PAGE / 8; i++)
            failures[id] += block[i] != i;
        free(block);
        if (id == 0 && round % 50 == 0) {
            pid_t child = fork();
            if (child == 0) {
                size_t bad = 0;
                for (size_t i = 0; i < BLOCK * PAGE / 8; i++)
                    bad += mine[i] != round + 1;
                _exit(bad != 0);
            }
            int status = 1;
            failures[id] += waitpid(child, &status, 0) != child || status != 0;
        }
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    size_t bad = 0;
    for (size_t i = 0; i < THREADS; i++)
        bad += failures[i];
    printf("failures %zu\n", bad);
    return bad != 0;
}
