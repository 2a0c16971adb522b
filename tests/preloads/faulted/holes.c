/* A program of one thread that relies on the ranges it has unmapped and moved: it maps there again, or unmaps the rest of
   them as a whole. Nobody else may have mapped anything there, and what it maps there stays. */
#include "window.h"

enum { PART = 2048, ALL = 4 * PART, PAUSE_US = 3000, SECONDS = 2 };

static void *map(void *at, size_t pages, int protection, int flags) {
    return mmap(at, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

/* Whether a range is unmapped and then mapped again with everything in it. */
static int maps_again(void) {
    unsigned char *at = map(NULL, ALL, PROT_READ | PROT_WRITE, 0);
    munmap(at, ALL * PAGE);
    usleep(PAUSE_US);
    int same = map(at, ALL, PROT_READ | PROT_WRITE, MAP_FIXED) == at;
    memset(at, 1, PART * PAGE);
    usleep(PAUSE_US);
    for (size_t i = 0; i < PART; i++)
        same &= at[i * PAGE] == 1;
    return same && munmap(at, ALL * PAGE) == 0;
}

/* Whether two mappings that lie behind each other move as one, and what they leave is unmapped with what is behind it. */
static int moves(void) {
    unsigned char *at = map(NULL, ALL, PROT_NONE, 0);
    if (map(at, PART, PROT_READ | PROT_WRITE, MAP_FIXED) != at)
        return 0;
    memset(at, 1, PART * PAGE);
    usleep(PAUSE_US);
    memset(at, 2, PART * PAGE);
    if (map(at + PART * PAGE, PART, PROT_READ | PROT_WRITE, MAP_FIXED) != at + PART * PAGE)
        return 0;
    unsigned char *to = mremap(at, 2 * PART * PAGE, (3 * PART + 1) * PAGE, MREMAP_MAYMOVE);
    if (to == MAP_FAILED)
        return 0;
    int same = to[0] == 2 && to[PART * PAGE - 1] == 2 && to[PART * PAGE] == 0;
    memset(to + PART * PAGE, 3, PART * PAGE);
    munmap(to, (3 * PART + 1) * PAGE);
    return munmap(at, ALL * PAGE) == 0 && same;
}

int main(void) {
    uint64_t *kept = filled(PART);
    size_t failures = 0;
    for (time_t end = time(NULL) + SECONDS; time(NULL) < end;)
        failures += !maps_again() + !moves() + (hurt(kept, 0, PART) != 0);
    printf("failures %zu\n", failures);
    return 0;
}
