/* Loops whose entries, exits and indices invite wrong conclusions, for the replay tests.
 *
 * usage: shapes SHAPE     run the shape between two int3, for single-stepping
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 24, COUNT = 4096 };

static double *a, *b, *c;
static int32_t *index32;
static uint8_t *text;
static int64_t *tree;
static volatile double sink;

static uint64_t state = 88172645463325252u;
static uint64_t rnd(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* Inner loops of growing length: the first and the last iteration look alike in the registers. */
static void triangle(int extra) {
    for (int i = 0; i < SIDE * 2; i++) {
        double sum = extra;
        for (int j = 0; j < i; j++) sum += a[i * SIDE + j] * b[j * 3];
        c[i] = sum;
    }
}

/* Rows of a sparse matrix: 0 to 7 entries, so that the inner loop is often left out. */
static void sparse(int extra) {
    const int32_t *column = index32;
    for (int row = 0; row < COUNT / 8; row++) {
        double sum = extra;
        for (int k = 0; k < (row * 5 & 7); k++) sum += b[column[k] & (COUNT - 1)];
        column += row & 7;
        if (column > index32 + COUNT - 16) column = index32;
        a[row] = sum;
    }
}

/* A jump table whose cases join again. */
static void cases(int extra) {
    long sum = extra;
    for (int i = 0; i < COUNT; i++) {
        switch (text[i] % 7) {
        case 0: sum += index32[i]; break;
        case 1: a[i] = sum; break;
        case 2: b[sum & 1023] += 1; /* falls through */
        case 3: sum ^= tree[i & 511]; break;
        case 4: c[i] = a[i ^ 1]; break;
        case 5: continue;
        default: sum -= text[(i * 3) & (COUNT - 1)];
        }
        sum += 7;
    }
    sink = sum;
}

/* Indices of 32 bits that run down, wrap and are negative. */
static void wraps(int extra) {
    uint32_t u = 0xfffffff0u + extra;
    double sum = 0;
    for (int i = COUNT - 1; i >= 0; i -= 3) {
        sum += a[i] + b[COUNT / 2 + (int32_t)(u & 1023) - 512];
        u += 5;
        if ((int32_t)u < 0) sum += (c + COUNT / 2)[(int32_t)u >> 16];
    }
    sink = sum;
}

/* Blocks of a transposition: four nested loops with the same kind of counter. */
static void tiles(int extra) {
    for (int ib = 0; ib < 48; ib += 8)
        for (int jb = 0; jb < 48; jb += 8)
            for (int i = ib; i < ib + 8; i++)
                for (int j = jb; j < jb + 8 - (extra & 1); j++) a[j * 48 + i] = b[i * 48 + j];
}

/* A loop that is left in three ways and entered again at once. */
static void scan(int extra) {
    long found = extra;
    for (int start = 0; start < COUNT - 64; start++) {
        int i = start;
        while (i < start + 40) {
            if (text[i] == 'x') goto hit;
            if (index32[i] < 1000) break;
            i += 1 + (text[i + 1] & 3);
        }
        found += i;
        continue;
    hit:
        found ^= tree[i & 511];
    }
    sink = found;
}

/* A heap: children at 2i + 1 and 2i + 2, conditional moves. */
static void sift(int extra) {
    for (int n = 511; n > 400; n--) {
        int64_t last = tree[n - 1] + extra;
        long i = 0, child;
        while ((child = 2 * i + 1) < n) {
            if (child + 1 < n && tree[child + 1] > tree[child]) child++;
            if (tree[child] <= last) break;
            tree[i] = tree[child];
            i = child;
        }
        tree[i] = last;
    }
}

/* Two loops behind a common start, and a recursion. */
static long nested(long *p, long n, int depth) {
    long sum = 0;
    if (n & 1)
        for (long i = 0; i < n; i++) sum += p[i];
    else
        for (long i = n - 1; i >= 0; i -= 2) p[i] ^= sum, sum += i;
    if (depth > 0 && n > 2) sum += nested(p + n / 3, n - n / 3 - 1, depth - 1) + nested(p, n / 2, depth - 1);
    return sum;
}

static void recursion(int extra) {
    sink = nested((long *)tree, 300 + extra, 6);
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
        void (*run)(int);
    } shapes[] = {{"triangle", triangle}, {"sparse", sparse}, {"cases", cases},        {"wraps", wraps},
                  {"tiles", tiles},       {"scan", scan},     {"sift", sift},          {"recursion", recursion}};
    a = array("a", COUNT * sizeof *a);
    b = array("b", COUNT * sizeof *b);
    /* Negative indices of wraps reach up to 65536 elements before its middle. */
    c = (double *)array("c", (COUNT + 65536) * sizeof *c) + 65536;
    index32 = array("index32", COUNT * sizeof *index32);
    text = array("text", COUNT);
    tree = array("tree", 512 * sizeof *tree);
    for (int i = 0; i < COUNT; i++) {
        a[i] = i, b[i] = 1.0 / (i + 1), c[i] = 0;
        index32[i] = rnd() & 0x7fff;
        text[i] = 'a' + rnd() % 26;
    }
    for (int i = 0; i < 512; i++) tree[i] = rnd() >> 16;
    fflush(stdout);
    for (size_t i = 0; argc == 2 && i < sizeof shapes / sizeof *shapes; i++) {
        if (strcmp(shapes[i].name, argv[1])) continue;
        shapes[i].run(argc - 2);
        __asm__ volatile("int3");
        shapes[i].run(argc - 1);
        __asm__ volatile("int3");
        return 0;
    }
    return 2;
}
