/* Random calls on mappings and blocks from matched call sites: unmapped in part, moved, grown, replaced, in a child, too.
 * Prints the most lines of /proc/self/maps that it saw and those at the end, when all is unmapped again; then maps one
 * object of LAST pages, which needs that many mappings of the budget. The sequence does not depend on addresses. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
enum { SLOTS = 120, MOST = 48, STEPS = 1500 };

struct slot { char *base; unsigned long pages, tag; int heap; };
static struct slot slots[SLOTS];
static unsigned long seed = 7, damaged, failed, most;

static unsigned long next(unsigned long n) {
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return (seed >> 33) % n;
}

__attribute__((noinline)) char *by_mmap(char *at, unsigned long pages, int flags) {
    char *p = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    __asm__ volatile("" ::: "memory");
    return p;
}

__attribute__((noinline)) char *by_malloc(unsigned long pages) {
    char *p = malloc(pages * PAGE);
    __asm__ volatile("" ::: "memory");
    return p;
}

__attribute__((noinline)) char *last(unsigned long pages) {
    char *p = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("" ::: "memory");
    return p;
}

static void fill(struct slot *s) {
    for (unsigned long i = 0; i < s->pages; i++) memcpy(s->base + i * PAGE, &(unsigned long){s->tag + i}, 8);
}

static void check(const struct slot *s, unsigned long pages) {
    for (unsigned long i = 0; i < pages && i < s->pages; i++) {
        unsigned long is;
        memcpy(&is, s->base + i * PAGE, 8);
        damaged += is != s->tag + i;
    }
}

static unsigned long lines(void) {
    static char buffer[1 << 16];
    FILE *f = fopen("/proc/self/maps", "r");
    unsigned long n = 0;
    for (size_t got; (got = fread(buffer, 1, sizeof buffer, f)) > 0;)
        for (size_t i = 0; i < got; i++) n += buffer[i] == '\n';
    fclose(f);
    return n;
}

static struct slot *empty(void) {
    for (int i = 0; i < SLOTS; i++)
        if (!slots[i].base) return &slots[i];
    return 0;
}

static void put(struct slot *s, char *base, unsigned long pages, int heap) {
    static unsigned long tags;
    if (!base || base == MAP_FAILED) {
        failed++;
        s->base = 0;
        return;
    }
    *s = (struct slot){base, pages, tags += 1000, heap};
    fill(s);
}

static void drop(struct slot *s) {
    check(s, s->pages);
    if (s->heap) free(s->base);
    else failed += munmap(s->base, s->pages * PAGE) != 0;
    s->base = 0;
}

static void change(struct slot *s) {
    unsigned long pages = 1 + next(MOST), how = next(8), half = s->pages / 2;
    check(s, s->pages);
    if (s->heap) {
        put(s, realloc(s->base, pages * PAGE), pages, 1);
    } else if (how == 0 && half) { /* the end */
        failed += munmap(s->base + half * PAGE, (s->pages - half) * PAGE) != 0;
        s->pages = half;
    } else if (how == 1 && half) { /* the front */
        failed += munmap(s->base, half * PAGE) != 0;
        put(s, s->base + half * PAGE, s->pages - half, 0);
    } else if (how == 2 && s->pages > 2) { /* a hole */
        struct slot *other = empty();
        if (!other) return;
        failed += munmap(s->base + half * PAGE, PAGE) != 0;
        put(other, s->base + (half + 1) * PAGE, s->pages - half - 1, 0);
        s->pages = half;
    } else if (how == 3 && half) { /* another mapping in its middle */
        failed += by_mmap(s->base + PAGE, half, MAP_FIXED) == MAP_FAILED;
        fill(s);
    } else if (how == 4) {
        mprotect(s->base + half * PAGE, PAGE, PROT_READ);
        mprotect(s->base + half * PAGE, PAGE, PROT_READ | PROT_WRITE);
    } else { /* grown, shrunk or moved to a certain place */
        char *to = how == 5 ? mmap(0, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : 0;
        char *p = mremap(s->base, s->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | (to ? MREMAP_FIXED : 0), to);
        if (p == MAP_FAILED) { /* it may consist of several mappings, without any placement */
            if (to) munmap(to, pages * PAGE);
            if (to && pages < s->pages) s->pages = pages;
            return;
        }
        s->base = p;
        unsigned long kept = pages < s->pages ? pages : s->pages;
        check(s, kept);
        put(s, p, pages, 0);
    }
}

static void steps(int count) {
    for (int step = 0; step < count; step++) {
        struct slot *s = &slots[next(SLOTS)];
        unsigned long pages = 1 + next(MOST);
        if (!s->base && next(2)) put(s, by_malloc(pages), pages, 1);
        else if (!s->base) put(s, by_mmap(0, pages, 0), pages, 0);
        else if (next(3) == 0) drop(s);
        else change(s);
        if (step % 100 == 0) {
            unsigned long now = lines();
            most = now > most ? now : most;
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 1;
    steps(STEPS);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        steps(200);
        _exit(damaged || failed);
    }
    int status = 1;
    failed += waitpid(child, &status, 0) != child || status != 0;
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].base) drop(&slots[i]);
    printf("damaged %lu failed %lu\n", damaged, failed);
    fprintf(stderr, "most %lu end %lu\n", most, lines());
    char *p = last(strtoul(argv[1], 0, 10));
    return p == MAP_FAILED;
}
