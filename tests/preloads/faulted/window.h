/* Waits for a window of the fault sampler: its pages are away, which mincore(2) tells without touching them. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL

static int is_away(const void *at, size_t pages) {
    unsigned char in_memory[4096];
    if (pages > sizeof in_memory || mincore((void *)at, pages * PAGE, in_memory) != 0)
        abort();
    for (size_t i = 0; i < pages; i++)
        if (in_memory[i] & 1)
            return 0;
    return 1;
}

/* Returns when all pages are away; where nothing samples, at once. */
__attribute__((unused)) static void wait_for_window(const void *at, size_t pages) {
    const struct timespec ms = {0, 1000000};
    while (getenv("NUMAMMA_CHANNEL") != NULL && !is_away(at, pages))
        nanosleep(&ms, NULL);
}

/* Memory whose every word tells its page. */
__attribute__((unused)) static uint64_t *filled(size_t pages) {
    uint64_t *all = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        abort();
    for (size_t i = 0; i < pages * PAGE / 8; i++)
        all[i] = i / (PAGE / 8) + 1;
    return all;
}

/* Words of `pages` that do not hold what `filled` wrote from page `first` on. */
static size_t hurt(const uint64_t *at, size_t first, size_t pages) {
    size_t bad = 0;
    for (size_t i = 0; i < pages * PAGE / 8; i++)
        bad += at[i] != first + i / (PAGE / 8) + 1;
    return bad;
}
