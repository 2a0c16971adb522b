/* A program that has all objects and call sites which policies/words.toml names; `grid` is in solver.c. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../include/numamma.h"

#define SITE __attribute__((noinline, noclone))
#define VARIABLE __attribute__((aligned(4096)))
enum { MIB = 1 << 20 };

VARIABLE char scratch[MIB], table[MIB], pinned[MIB], cache[MIB], halo[MIB], matrix[MIB], stream[MIB], per_thread[MIB], diagonal[MIB],
    strided[MIB], hashed[MIB], mesh[3 * MIB], odd_rows[MIB], odd_planes[24 * MIB], field[4 * MIB], columns[MIB], vector[MIB], grid_[8 * MIB];
VARIABLE static char work[MIB];
/* A part of .bss that no variable occupies. */
__asm__(".bss\n.balign 4096\n.skip 1048576\n.text");

char *solver_grid(void);

static volatile char *touched;

SITE static void *made(void *p, size_t n) {
    touched = memset(p, 1, n);
    return p;
}

SITE void *make_buffer(size_t n) { return made(malloc(n), n); }
SITE void *make_row(size_t n) { return made(malloc(n), n); }
SITE void *open_results(size_t n) { return made(malloc(n), n); }
SITE void *make_mesh(size_t n) {
#line 120 "src/mesh.c"
    void *p = malloc(n);
    return made(p, n);
}

int main(void) {
    char *variables[] = {scratch,  table,   pinned, cache, halo, matrix, stream, per_thread, diagonal,
                         strided,  hashed,  mesh,   odd_rows, odd_planes, field, columns, vector, work,       grid_, solver_grid()};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) made(variables[i], MIB);
    make_buffer(MIB);
    make_mesh(MIB);
    for (int i = 0; i < 8; i++) make_row(MIB);
    numamma_phase("solve");
    for (int i = 0; i < 3; i++) open_results(MIB);
    puts("ok");
}
