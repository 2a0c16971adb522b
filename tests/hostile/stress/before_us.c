/* Code that runs before the constructor of a preload library: that of a library which the program is linked to. It
 * allocates where a hook that looks for the next malloc or mmap must not take locks or allocate.
 *
 * - bindtextdomain calls malloc under the lock of gettext. dlerror takes this lock, too.
 * - With -DOWN the program has an allocator of its own, which maps its memory at the first call and until then may not be
 *   called again, as jemalloc's. Before glibc 2.34 dlsym calls calloc.
 *
 * Prints `bound 4, entered again 0`. */
#define _GNU_SOURCE
#include <libintl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef LIBRARY
int bound;

__attribute__((constructor)) static void bind(void) { bound += bindtextdomain("numamma-one", "/nowhere") != 0; }
#else
extern int bound;
static volatile int again;

#ifdef OWN
#define ROOM ((size_t)64 << 20)
static char spare[1 << 16] __attribute__((aligned(16)));
static char *arena;
static size_t used, spared;

/* The size is in the 16 bytes before a block. */
static void *cut(char *from, size_t *at, size_t n) {
    char *block = from + *at + 16;
    memcpy(block - 16, &n, sizeof n);
    *at += (n + 31) & ~(size_t)15;
    return block;
}

void *malloc(size_t n) {
    static volatile int is_mapping; /* mmap has the attribute "leaf" */
    if (is_mapping) {
        again++;
        return spared + n + 32 < sizeof spare ? cut(spare, &spared, n) : 0;
    }
    if (!arena) {
        is_mapping = 1;
        arena = mmap(0, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        is_mapping = 0;
    }
    return used + n + 32 < ROOM ? cut(arena, &used, n) : 0;
}
void free(void *p) { (void)p; }
void *calloc(size_t n, size_t m) {
    void *p = malloc(n * m);
    return p ? memset(p, 0, n * m) : 0;
}
void *realloc(void *p, size_t n) {
    void *q = malloc(n);
    size_t had = 0;
    if (p) memcpy(&had, (char *)p - 16, sizeof had);
    return p && q ? memcpy(q, p, had < n ? had : n) : q;
}
#endif

int main(void) {
    alarm(20); /* a lock that was released twice: who takes it waits forever */
    for (int i = 0; i < 3; i++) bound += gettext("text") && bindtextdomain("numamma-two", "/nowhere");
    return printf("bound %d, entered again %d\n", bound, again) < 0;
}
#endif
