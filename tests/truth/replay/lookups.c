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
static int64_t *wide, *longs, *copies;
static const double weights[2] __attribute__((aligned(16))) = {0.5, 0.25};
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

/* Indices that are kept within bounds by conditional moves, as numpy's take(mode='clip') does: both bounds, and both
 * with other registers than the load's own. */
KERNEL clipped(uint32_t k) {
    long last = TABLE - 1 - k;
    for (long i = 0; i < COUNT; i++) {
        long at = wide[i];
        at = at > last ? last : at;
        at = at < 0 ? 0 : at;
        copies[i] = longs[at];
    }
}

KERNEL clipped_narrow(uint32_t k) {
    int32_t last = TABLE - 1 - k;
    for (long i = 0; i < COUNT; i++) {
        int32_t at = idx[i];
        at = at > last ? last : at;
        copies[i] = longs[at];
    }
}

/* numpy's own loop: the bound is the address of the last element, chosen in place of the address. */
KERNEL taken(uint32_t k) {
    long n = TABLE - k, i = 0, t0, t1;
    __asm__ volatile("1: mov (%[idx],%[i],8),%[t0]\n mov %[from],%[t1]\n test %[t0],%[t0]\n js 2f\n"
                     " lea (%[from],%[t0],8),%[t1]\n cmp %[t0],%[n]\n cmovle %[last],%[t1]\n"
                     "2: mov (%[t1]),%[t1]\n mov %[t1],(%[to],%[i],8)\n add $1,%[i]\n cmp %[count],%[i]\n jne 1b\n"
                     : [i] "+r"(i), [t0] "=&r"(t0), [t1] "=&r"(t1)
                     : [idx] "r"(wide), [from] "r"(longs), [last] "r"(longs + n - 1), [to] "r"(copies), [n] "r"(n),
                       [count] "r"((long)COUNT)
                     : "memory", "cc");
}

/* The compared index is overwritten, in its register and in memory: either address may have been chosen. */
KERNEL chosen(uint32_t k) {
    long i = 0, t0, t1;
    __asm__ volatile("1: mov (%[idx],%[i],8),%[t0]\n lea (%[from],%[i],8),%[t1]\n cmp %[n],%[t0]\n mov %[i],%[t0]\n"
                     " mov %[i],(%[idx],%[i],8)\n"
                     " cmovge %[last],%[t1]\n mov (%[t1]),%[t1]\n mov %[t1],(%[to],%[i],8)\n add $1,%[i]\n"
                     " cmp %[count],%[i]\n jne 1b\n"
                     : [i] "+r"(i), [t0] "=&r"(t0), [t1] "=&r"(t1)
                     : [idx] "r"(wide), [from] "r"(longs), [last] "r"(longs + TABLE - 1), [to] "r"(copies),
                       [n] "r"((long)TABLE / 2 + k), [count] "r"((long)COUNT)
                     : "memory", "cc");
}

/* A flag as an index: setcc. */
KERNEL halves(uint32_t k) {
    int32_t half = TABLE / 2;
    for (long i = 0; i < COUNT; i++) copies[i] = longs[(long)((int32_t)idx[i] > (int32_t)k + half) * half + i];
}

/* A constant of the code and a load are the operands of one instruction. */
KERNEL weighted(uint32_t k) {
    double sum = k;
    const double *at = (const double *)longs, *end = at + COUNT;
    __asm__ volatile("1: movupd (%[at]),%%xmm0\n mulpd %[weight],%%xmm0\n add $16,%[at]\n addsd %%xmm0,%[sum]\n"
                     " unpckhpd %%xmm0,%%xmm0\n addsd %%xmm0,%[sum]\n cmp %[at],%[end]\n jne 1b\n"
                     : [at] "+r"(at), [sum] "+x"(sum)
                     : [end] "r"(end), [weight] "m"(weights)
                     : "memory", "cc", "xmm0");
    sink = sum;
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
                   {"hashed", hashed},   {"chained", chained},       {"changing", changing},
                   {"clipped", clipped}, {"clipped_narrow", clipped_narrow},
                   {"taken", taken},     {"chosen", chosen},         {"halves", halves},
                   {"weighted", weighted}};
    idx = array("idx", COUNT * sizeof *idx);
    other = array("other", COUNT * sizeof *other);
    narrow = array("narrow", COUNT * sizeof *narrow);
    middle = array("middle", MIDDLE * sizeof *middle);
    table = array("table", TABLE * sizeof *table);
    wide = array("wide", COUNT * sizeof *wide);
    longs = array("longs", TABLE * sizeof *longs);
    copies = array("copies", COUNT * sizeof *copies);
    for (long i = 0; i < TABLE; i++) longs[i] = rnd();
    for (long i = 0; i < COUNT; i++) wide[i] = (long)(rnd() % (TABLE + TABLE / 8)) - TABLE / 16;
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
