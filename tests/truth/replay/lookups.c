/* Look-ups whose address register the load itself overwrites, or whose index is computed from memory, for stepping.
 *
 * usage: lookups KERNEL     print `object NAME ADDR BYTES`, then run once between two int3
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 4000, TABLE = 1 << 18, MIDDLE = 1 << 14 };

static uint32_t *idx, *other, *middle;
static uint16_t *narrow;
static int32_t *table;
static volatile long sink;

#define KERNEL __attribute__((noinline)) static void

/* `mov (table,rdx,4),%edx`. */
KERNEL sum(uint32_t k) {
    long s = k;
    for (long i = 0; i < COUNT; i++) s += table[idx[i]];
    sink = s;
}

/* Without optimisation `movslq (table,rcx,4),%rcx`. */
KERNEL sum_signed(uint32_t k) {
    const int32_t *at = (const int32_t *)idx;
    long s = k;
    for (long i = 0; i < COUNT; i++) s += table[at[i]];
    sink = s;
}

KERNEL sum_narrow(uint32_t k) {
    long s = k;
    for (long i = 0; i < COUNT; i++) s += table[narrow[i]];
    sink = s;
}

/* `xor (idx,rdi,4),%ecx`. */
KERNEL mixed(uint32_t k) {
    long s = 0;
    for (long i = 0; i < COUNT; i++) s += table[idx[i] ^ (k & 1)];
    sink = s;
}

KERNEL shifted(uint32_t k) {
    long s = 0;
    for (long i = 0; i < COUNT; i++) s += table[(idx[i] + k) & (TABLE - 1)];
    sink = s;
}

KERNEL masked(uint32_t k) {
    long s = 0;
    uint32_t mask = (TABLE - 1) ^ k;
    for (long i = 0; i < COUNT; i++) s += table[idx[i] & mask];
    sink = s;
}

KERNEL hashed(uint32_t k) {
    long s = 0;
    for (long i = 0; i < COUNT; i++) s += table[(uint64_t)((idx[i] << 14) ^ k) * TABLE >> 32];
    sink = s;
}

/* An index that is looked up itself. */
KERNEL chained(uint32_t k) {
    long s = k;
    for (long i = 0; i < COUNT; i++) s += table[middle[idx[i] % MIDDLE]];
    sink = s;
}

/* The indices are others when they are read again. */
KERNEL changing(uint32_t k) {
    long s = k;
    for (long i = 0; i < COUNT; i++) s += table[idx[i]];
    for (long i = 0; i < COUNT; i++) idx[i] = other[i];
    sink = s;
}

static uint32_t state = 2463534242u;
static uint32_t rnd(void) {
    state ^= state << 13;
    state ^= state >> 17;
    return state ^= state << 5;
}

static void *array(const char *name, size_t bytes) {
    void *p = aligned_alloc(4096, (bytes + 4095) & ~4095ul);
    if (!p) abort();
    printf("object %s %lu %lu\n", name, (unsigned long)p, (unsigned long)bytes);
    return p;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(uint32_t);
    } kernels[] = {{"sum", sum},         {"sum_signed", sum_signed}, {"sum_narrow", sum_narrow},
                   {"mixed", mixed},     {"shifted", shifted},       {"masked", masked},
                   {"hashed", hashed},   {"chained", chained},       {"changing", changing}};
    idx = array("idx", COUNT * sizeof *idx);
    other = array("other", COUNT * sizeof *other);
    narrow = array("narrow", COUNT * sizeof *narrow);
    middle = array("middle", MIDDLE * sizeof *middle);
    table = array("table", TABLE * sizeof *table);
    for (long i = 0; i < COUNT; i++) idx[i] = rnd() % TABLE, other[i] = rnd() % TABLE, narrow[i] = rnd();
    for (long i = 0; i < MIDDLE; i++) middle[i] = rnd() % TABLE;
    for (long i = 0; i < TABLE; i++) table[i] = rnd() >> 1;
    fflush(stdout);
    for (size_t i = 0; argc == 2 && i < sizeof kernels / sizeof *kernels; i++) {
        if (strcmp(kernels[i].name, argv[1])) continue;
        __asm__ volatile("int3");
        kernels[i].run(argc + 3);
        __asm__ volatile("int3");
        return 0;
    }
    return 2;
}
