/* Phases of a program, drawn from a seed: in each it has some MiB in use, in objects of 32 bytes to 8 MiB that it
 * allocates, enlarges and frees in one of several orders.   mixes SEED
 * Writes the most memory, KiB, to standard error. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { MOST = 200000, STEPS = 300000, MIB = 1 << 20 };
static const size_t ALL = 1500ul * MIB, LARGEST = 8ul * MIB;

static struct object { char *start; size_t size; } objects[MOST];
static int count;
static size_t live;
static unsigned damaged;
static uint64_t state;

static uint64_t next(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static size_t between_powers(int low, int high) {
    size_t size = 1ul << (low + next() % (high - low));
    return size + next() % size;
}

__attribute__((noinline)) static char *make(char *old, size_t size) {
    char *block = realloc(old, size);
    __asm__ volatile("" ::"r"(block));
    return block;
}

static char tag(size_t size) { return (char)(size * 7); }

static void add(size_t size) {
    if (count == MOST) return;
    struct object new = { make(NULL, size), size };
    if (next() % 8) memset(new.start, count, size);
    new.start[0] = tag(size);
    objects[count++] = new;
    live += size;
}

static void drop(int at) {
    damaged += objects[at].start[0] != tag(objects[at].size);
    free(objects[at].start);
    live -= objects[at].size;
    objects[at] = objects[--count];
}

/* False where it would be too large. */
static int enlarge(struct object *object) {
    size_t before = object->size, size = before + before / (1 + next() % 3) + 16;
    if (size > LARGEST) return 0;
    object->start = make(object->start, size);
    damaged += object->start[0] != tag(before);
    memset(object->start + before, 1, size - before);
    object->start[0] = tag(size);
    object->size = size;
    live += size - before;
    return 1;
}

static size_t phase(void) {
    enum { LAST = 0, RANDOM = 1, SIZES = 3, NEAR = 4, GROW = 5, FIRST = 6, KINDS = 7 };
    int kind = next() % KINDS, low = 5 + next() % 12, high = low + 1 + next() % 6;
    size_t target = (5 + next() % 60) * MIB, length = (20 + next() % 150) * MIB, done = 0, fixed[4];
    if (high > 23) high = 23;
    for (int i = 0; i < 4; i++) fixed[i] = between_powers(low, high);
    for (int steps = 0; done < length && steps < STEPS; steps++) {
        size_t size = kind < SIZES ? between_powers(low, high) : fixed[next() % 4] + (kind == NEAR ? next() % 5000 : 0);
        if (kind == GROW && count) {
            int at = next() % count;
            if (!enlarge(&objects[at])) {
                drop(at);
                continue;
            }
            done += objects[at].size;
            if (count < 20) add(size);
        } else {
            add(size);
            done += size;
        }
        while (live > target && count) drop(kind == LAST ? count - 1 : kind == FIRST ? 0 : (int)(next() % count));
    }
    int keeps = next() % 3;
    for (int i = count - 1; i >= 0; i--)
        if (keeps == 0 || (keeps == RANDOM && next() % 2)) drop(i);
    return done;
}

int main(int arguments, char **argument) {
    state = 88172645463325252ull ^ ((arguments > 1 ? strtoull(argument[1], NULL, 10) : 1) * 0x9E3779B97F4A7C15ull);
    for (size_t done = 0; done < ALL;) done += phase();
    while (count) drop(count - 1);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr, "%ld\n", used.ru_maxrss);
    printf("damaged %u\n", damaged);
    return 0;
}
