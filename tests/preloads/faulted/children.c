/* Children that change their address space as soon as they are forked, while they still miss pages of their parent: prints
 * how many found other contents than theirs. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BIG = 24 << 20, OTHER = 4 << 20, FORKS = 12 };

static char *mapped(size_t bytes) {
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) _exit(3);
    return at;
}

/* Whether each page begins with `byte`. */
static int holds(const char *at, size_t bytes, char byte) {
    for (size_t i = 0; i < bytes; i += PAGE)
        if (at[i] != byte) return 0;
    return 1;
}

/* What a child does; returns whether the data are as they must be. */
static int change(int kind, const char *big, char *other) {
    int status = 0;
    if (kind == 0) {
        pid_t child = fork();
        if (!child) _exit(!holds(other, OTHER, 2) || !holds(big, BIG, 1));
        waitpid(child, &status, 0);
    }
    if (kind == 1) return !munmap(other, OTHER) && holds(mapped(OTHER), OTHER, 0);
    if (kind == 2) return !madvise(other, OTHER / 2, MADV_DONTNEED) && holds(other, OTHER / 2, 0) &&
                          holds(other + OTHER / 2, OTHER / 2, 2);
    if (kind == 3) {
        other = mremap(other, OTHER, 2 * OTHER, MREMAP_MAYMOVE);
        return other != MAP_FAILED && holds(other, OTHER, 2) && holds(other + OTHER, OTHER, 0);
    }
    return !status && holds(other, OTHER, 2);
}

int main(void) {
    char *big = mapped(BIG), *other = mapped(OTHER);
    int failures = 0;
    for (int i = 0; i < FORKS * 4; i++) {
        memset(big, 1, BIG);
        memset(other, 2, OTHER);
        pid_t child = fork();
        if (!child) _exit(!change(i % 4, big, other) || !holds(big, BIG, 1));
        int status = 0;
        waitpid(child, &status, 0);
        failures += status != 0;
    }
    printf("failures %d\n", failures);
    return 0;
}
