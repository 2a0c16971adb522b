// Arrays that a program walks side by side: 64 of 160 KiB at a time, some from calloc and from memalign, of which some
// grow, shrink and are freed, in 40 rounds. To standard output: what was damaged. To standard error: at how many places
// within a page the first ones begin, but for those from memalign.
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAYS = 64, ROUNDS = 40, BYTES = 160 << 10 };

static unsigned char *arrays[ARRAYS];
static size_t sizes[ARRAYS];
static int damaged;

static unsigned char byte(int array, size_t at) { return (unsigned char)(array * 31 + at * 7 + (at >> 12)); }

static void check(int array, size_t until) {
    for (size_t at = 0; at < until; at++) damaged += arrays[array][at] != byte(array, at);
}

static void fill(int array, size_t from) {
    for (size_t at = from; at < sizes[array]; at++) arrays[array][at] = byte(array, at);
}

__attribute__((noinline)) static unsigned char *site(int array, size_t size) {
    if (array % 5 == 1) return calloc(size, 1);
    if (array % 5 == 2) return memalign(4096 >> array % 9, size);
    return malloc(size);
}

__attribute__((noinline)) static unsigned char *resize(unsigned char *array, size_t size) { return realloc(array, size); }

static void new_array(int array, size_t size) {
    unsigned char *fresh = site(array, size);
    if (!fresh) abort();
    for (size_t at = 0; array % 5 == 1 && at < size; at++) damaged += fresh[at] != 0;
    damaged += array % 5 == 2 && (uintptr_t)fresh % (4096 >> array % 9) != 0;
    arrays[array] = fresh;
    // All that the allocator says is there.
    sizes[array] = malloc_usable_size(fresh);
    damaged += sizes[array] < size || (uintptr_t)fresh % 16 != 0;
    fill(array, 0);
}

int main(void) {
    char begun[4096] = {0};
    int places = 0;
    for (int array = 0; array < ARRAYS; array++) {
        new_array(array, BYTES);
        places += array % 5 != 2 && !begun[(uintptr_t)arrays[array] % 4096]++;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int array = round % 3; array < ARRAYS; array += 3) {
            size_t before = sizes[array], now = BYTES / 2 + (size_t)(array * 7919 + round * 104729) % (20 * BYTES);
            check(array, before);
            unsigned char *moved = resize(arrays[array], now);
            if (!moved) abort();
            arrays[array] = moved;
            sizes[array] = malloc_usable_size(moved);
            check(array, before < now ? before : now);
            fill(array, before < now ? before : now);
        }
        for (int array = round % 4; array < ARRAYS; array += 4) {
            check(array, sizes[array]);
            free(arrays[array]);
            new_array(array, BYTES + round);
        }
    }
    for (int array = 0; array < ARRAYS; array++) {
        check(array, sizes[array]);
        free(arrays[array]);
    }
    printf("damaged %d\n", damaged);
    fprintf(stderr, "%d\n", places);
    return 0;
}
