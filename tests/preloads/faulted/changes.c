/* What a program does to its address space in a window, with pages that are away; each case says how many words are not
   as they are without a window. */
#include "window.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/syscall.h>

extern char **environ;

static size_t is_zero(const uint64_t *at, size_t pages) {
    size_t bad = 0;
    for (size_t i = 0; i < pages * PAGE / 8; i++)
        bad += at[i] != 0;
    return bad;
}

static size_t ended_badly(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static size_t forked(uint64_t *all) {
    pid_t child = fork();
    if (child == 0)
        _exit(hurt(all, 0, 64) != 0);
    size_t bad = ended_badly(child);
    return bad + hurt(all, 0, 64);
}

static size_t spawned(uint64_t *all) {
    char *words[] = {"true", NULL};
    pid_t child = -1;
    posix_spawnp(&child, "true", NULL, NULL, words, environ);
    return ended_badly(child) + hurt(all, 0, 64);
}

static size_t discarded(uint64_t *all) {
    if (madvise(all + 8 * PAGE / 8, 16 * PAGE, MADV_DONTNEED) != 0)
        return 1;
    return hurt(all, 0, 8) + is_zero(all + 8 * PAGE / 8, 16) + hurt(all + 24 * PAGE / 8, 24, 40);
}

static size_t unmapped(uint64_t *all) {
    if (munmap(all + 8 * PAGE / 8, 16 * PAGE) != 0)
        return 1;
    uint64_t *fresh = mmap(all + 8 * PAGE / 8, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return (fresh != all + 8 * PAGE / 8) + is_zero(fresh, 16) + hurt(all, 0, 8) + hurt(all + 24 * PAGE / 8, 24, 40);
}

static size_t moved(uint64_t *all) {
    uint64_t *part = mremap(all + 16 * PAGE / 8, 32 * PAGE, 48 * PAGE, MREMAP_MAYMOVE);
    if (part == MAP_FAILED)
        return 1;
    return hurt(part, 16, 32) + is_zero(part + 32 * PAGE / 8, 16) + hurt(all, 0, 16) + hurt(all + 48 * PAGE / 8, 48, 16);
}

/* Past the hook of the library that records. */
static size_t moved_directly(uint64_t *all) {
    long part = syscall(SYS_mremap, all + 16 * PAGE / 8, 32 * PAGE, 48 * PAGE, MREMAP_MAYMOVE);
    if (part == -1)
        return 1;
    uint64_t *at = (uint64_t *)part;
    return hurt(at, 16, 32) + is_zero(at + 32 * PAGE / 8, 16) + hurt(all, 0, 16) + hurt(all + 48 * PAGE / 8, 48, 16);
}

static size_t grown(uint64_t *all) {
    uint64_t *whole = mremap(all, 64 * PAGE, 4096 * PAGE, MREMAP_MAYMOVE);
    if (whole == MAP_FAILED)
        return 1;
    return hurt(whole, 0, 64) + is_zero(whole + 64 * PAGE / 8, 64);
}

static size_t protected(uint64_t *all) {
    if (mprotect(all + 8 * PAGE / 8, 16 * PAGE, PROT_READ) != 0)
        return 1;
    size_t bad = hurt(all, 0, 64);
    if (mprotect(all, 64 * PAGE, PROT_NONE) != 0 || mprotect(all, 64 * PAGE, PROT_READ | PROT_WRITE) != 0)
        return bad + 1;
    return bad + hurt(all, 0, 64);
}

static size_t locked(uint64_t *all) {
    if (mlock(all, 16 * PAGE) != 0 && errno != ENOMEM && errno != EPERM)
        return 1;
    return hurt(all, 0, 64);
}

static size_t closed(uint64_t *all) {
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    return hurt(all, 0, 64);
}

/* Half a range, which has its other half behind it when it is moved. */
enum { HALF = 1024 };

static int maps_half(char *at) {
    return mmap(at, HALF * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
}

static uint64_t *half(void) {
    char *all = mmap(NULL, 2 * HALF * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED || !maps_half(all))
        abort();
    for (size_t i = 0; i < HALF * PAGE / 8; i++)
        ((uint64_t *)all)[i] = i / (PAGE / 8) + 1;
    return (uint64_t *)all;
}

static size_t moved_whole(uint64_t *all) {
    uint64_t *whole = mremap(all, 2 * HALF * PAGE, 3 * HALF * PAGE, MREMAP_MAYMOVE);
    if (whole == MAP_FAILED)
        return 1;
    return hurt(whole, 0, HALF) + is_zero(whole + HALF * PAGE / 8, 2 * HALF);
}

/* What is mapped in the window, beside pages that are away, moves with them. */
static size_t extended(uint64_t *all) {
    char *behind = (char *)all + HALF * PAGE;
    if (!maps_half(behind))
        return 1;
    memset(behind, 0, HALF * PAGE);
    return moved_whole(all);
}

static size_t extended_by_child(uint64_t *all) {
    char *behind = (char *)all + HALF * PAGE;
    if (!maps_half(behind))
        return 1;
    pid_t child = fork();
    if (child == 0)
        _exit(moved_whole(all) != 0);
    return ended_badly(child) + hurt(all, 0, HALF);
}

/* Ranges with a hole do not move. */
static size_t moved_in_vain(uint64_t *all) {
    munmap(all + 8 * PAGE / 8, PAGE);
    errno = 0;
    void *whole = mremap(all, 64 * PAGE, 128 * PAGE, MREMAP_MAYMOVE);
    return (whole != MAP_FAILED) + (errno != EFAULT) + hurt(all, 0, 8) + hurt(all + 9 * PAGE / 8, 9, 55);
}

static size_t moved_by_child_in_vain(uint64_t *all) {
    pid_t child = fork();
    if (child == 0)
        _exit(moved_in_vain(all) != 0);
    return ended_badly(child) + hurt(all, 0, 64);
}

/* A huge page of which a part is discarded, where huge pages are to be had. */
static size_t huge_discarded(uint64_t *all) {
    if (madvise(all + 100 * PAGE / 8, 16 * PAGE, MADV_DONTNEED) != 0)
        return 1;
    size_t bad = hurt(all, 0, 100) + hurt(all + 116 * PAGE / 8, 116, 512 - 116);
    return bad + is_zero(all + 100 * PAGE / 8, 16);
}

static uint64_t *huge(void) {
    char *room = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *all = (char *)(((uintptr_t)room + (2 << 20) - 1) & -(uintptr_t)(2 << 20));
    madvise(all, 2 << 20, MADV_HUGEPAGE);
    for (size_t i = 0; i < (2 << 20) / 8; i++)
        ((uint64_t *)all)[i] = i / (PAGE / 8) + 1;
    return (uint64_t *)all;
}

static size_t crossed(uint64_t *all) {
    int tube[2];
    static char back[4 * PAGE];
    if (pipe(tube) != 0 || write(tube[1], all, sizeof back) != sizeof back || read(tube[0], back, sizeof back) != sizeof back)
        return 1;
    return memcmp(back, all, sizeof back) != 0;
}

/* A child that was forked between two windows has shared the pages, which are not moved before the program writes them. */
static void own_again(volatile uint64_t *all, size_t pages) {
    for (size_t i = 0; i < pages * PAGE / 8; i += PAGE / 8)
        all[i] = all[i];
}

int main(void) {
    const struct {
        const char *name;
        size_t (*run)(uint64_t *);
    } cases[] = {{"fork", forked},         {"spawn", spawned},   {"madvise", discarded}, {"munmap", unmapped},
                 {"mremap", moved},        {"mremap directly", moved_directly},
                 {"grow", grown},      {"mprotect", protected}, {"mlock", locked},
                 {"system calls", crossed}, {"close", closed},
                 {"huge", huge_discarded},
                 {"extend", extended},         {"extend in a child", extended_by_child},
                 {"in vain", moved_in_vain},   {"in vain in a child", moved_by_child_in_vain}};
    enum { CASES = sizeof cases / sizeof *cases };
    uint64_t *memory[CASES];
    for (int i = 0; i < CASES; i++)
        memory[i] = cases[i].run == huge_discarded                                     ? huge()
                    : cases[i].run == extended || cases[i].run == extended_by_child ? half()
                                                                                     : filled(64);
    for (int i = 0; i < CASES; i++) {
        own_again(memory[i], 64);
        wait_for_window(memory[i], 64);
        size_t bad = cases[i].run(memory[i]);
        printf("%s %zu\n", cases[i].name, bad);
    }
    fflush(stdout);
    return 0;
}
