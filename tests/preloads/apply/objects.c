// Globals and heap objects of every kind that can be placed, touched in part, checked for their contents.
// usage: objects [exit|_exit|_Exit|quick_exit|fork|abort]
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <malloc.h>

#define PAGE 4096
#define CHECK(what) do { if (!(what)) { fprintf(stderr, "failed: %s (line %d)\n", #what, __LINE__); exit(99); } } while (0)

char zeroes[64 * PAGE];                        // .bss, 40 pages touched
char initialised[16 * PAGE] = {1, 2, 3};       // .data, never written
void *relocated[4 * PAGE / 8] = {zeroes, initialised};
char tiny[100];
static char local_state[8 * PAGE];

__attribute__((noinline)) void *make_grid(size_t n) { void *p = malloc(n); __asm__ volatile(""); return p; }
__attribute__((noinline)) void *make_zeroed(size_t n) { void *p = calloc(n, 1); __asm__ volatile(""); return p; }
__attribute__((noinline)) void *make_aligned(size_t a, size_t n) {
    void *p = NULL; int rc = posix_memalign(&p, a, n); CHECK(rc == 0); return p;
}
__attribute__((noinline)) void *make_map(size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile(""); return p;
}
__attribute__((noinline)) void *grow_grid(void *p, size_t n) { void *q = realloc(p, n); __asm__ volatile(""); return q; }

static int all(const char *p, size_t n, char c) { for (size_t i = 0; i < n; i++) if (p[i] != c) return 0; return 1; }

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "exit";
    CHECK(initialised[0] == 1 && initialised[2] == 3 && all(initialised + 3, sizeof initialised - 3, 0));
    CHECK(relocated[0] == zeroes && relocated[1] == initialised);
    CHECK(all(zeroes, sizeof zeroes, 0));
    memset(zeroes, 1, 40 * PAGE);
    memset(local_state, 1, sizeof local_state);
    tiny[0] = 1;

    errno = 77;
    char *grid = make_grid(100 * PAGE);
    CHECK(errno == 77);
    CHECK(grid && malloc_usable_size(grid) >= 100 * PAGE);
    memset(grid, 5, 30 * PAGE);
    char *zeroed = make_zeroed(3 << 20);
    CHECK(all(zeroed, 3 << 20, 0));
    memset(zeroed, 6, 3 << 20);
    char *aligned = make_aligned(1 << 16, 20 * PAGE);
    CHECK(((uintptr_t)aligned & 0xffff) == 0);
    memset(aligned, 7, 10 * PAGE);
    char *map = make_map(50 * PAGE);
    CHECK(map != MAP_FAILED);
    memset(map, 8, 25 * PAGE);
    CHECK(munmap(map + 20 * PAGE, 2 * PAGE) == 0); // a hole in the touched part
    char *little = make_grid(10);
    memset(little, 9, 10);

    grid = grow_grid(grid, 200 * PAGE);            // placed object grows: copied
    CHECK(all(grid, 30 * PAGE, 5));
    grid = grow_grid(grid, 60 * PAGE);             // and shrinks
    CHECK(all(grid, 30 * PAGE, 5));
    char *from_small = grow_grid(memset(malloc(100), 3, 100), 10 * PAGE);
    CHECK(all(from_small, 100, 3));
    char *back = grow_grid(from_small, 50);        // below a page: back to the real heap
    CHECK(all(back, 50, 3));
    free(back);
    CHECK(realloc(grow_grid(NULL, 2 * PAGE), 0) == NULL);
    for (int i = 0; i < 100; i++) { char *p = make_grid(5 * PAGE); p[0] = p[5 * PAGE - 1] = 1; free(p); }
    free(little);

    fflush(stdout);
    if (!strcmp(how, "fork")) {
        pid_t child = fork();
        if (child == 0) {
            CHECK(all(grid, 30 * PAGE, 5));
            memset(grid, 1, 30 * PAGE);
            free(grid);
            char *mine = make_grid(7 * PAGE);
            memset(mine, 2, 7 * PAGE);
            exit(all(zeroes, 40 * PAGE, 1) ? 42 : 43);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);
        CHECK(all(grid, 30 * PAGE, 5));
    }
    printf("sum %d\n", zeroes[PAGE] + grid[0] + zeroed[0] + aligned[0] + map[0]);
    fflush(stdout);
    if (!strcmp(how, "_exit")) _exit(7);
    if (!strcmp(how, "_Exit")) _Exit(7);
    if (!strcmp(how, "quick_exit")) quick_exit(7);
    if (!strcmp(how, "abort")) abort();
    return 0;
}
