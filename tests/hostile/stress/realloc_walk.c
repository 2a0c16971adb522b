/* Objects grow and shrink by random sizes, from nothing to eight megabytes; every byte that C keeps is checked. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { OBJECTS = 40, STEPS = 2500 };

static uint64_t next(void) {
    static uint64_t s = 88172645463325252u;
    return s ^= s << 13, s ^= s >> 7, s ^= s << 17;
}

/* Each word depends on its place and on the object. */
static uint64_t word(size_t object, size_t i) { return (object + 1) * 0x9e3779b97f4a7c15u ^ i * 0xff51afd7ed558ccdu; }

int main(void) {
    uint64_t *object[OBJECTS] = {0};
    size_t words[OBJECTS] = {0}, damaged = 0, checked = 0;
    for (int step = 0; step < STEPS; step++) {
        size_t o = next() % OBJECTS, kinds[] = {64, 600, 5000, 5000, 40000, 1 << 20};
        size_t now = 1 + next() % kinds[next() % 6], kept = now < words[o] ? now : words[o];
        if (next() % 4 == 0) now = kept = words[o] + (words[o] == 0); /* the same size again */
        if (words[o] == 0) kept = 0;
        uint64_t *fresh = step % 3 ? realloc(object[o], now * 8) : reallocarray(object[o], now, 8);
        if (!fresh || malloc_usable_size(fresh) < now * 8 || (uintptr_t)fresh % 16) return 1;
        for (size_t i = 0; i < kept; i++) damaged += fresh[i] != word(o, i);
        for (size_t i = kept; i < now; i++) fresh[i] = word(o, i);
        object[o] = fresh, words[o] = now, checked += kept;
    }
    for (size_t o = 0; o < OBJECTS; o++) free(object[o]);
    printf("%zu words checked, %zu damaged\n", checked, damaged);
    return 0;
}
