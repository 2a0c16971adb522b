/* A table of rows of varying size in little more address space than it needs.   near_limit
 * 1,000 rows of 2 to 150 KB, of which one replaces or resizes another 40,000 times, in 120 MiB (RLIMIT_AS) where the C
 * library needs 90. Writes the number of allocations that failed, and whether the contents were right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { ROWS = 1000, TIMES = 40000 };

static unsigned char *rows[ROWS];
static size_t sizes[ROWS];

static unsigned random_number(void) {
    static unsigned state = 1;
    state = state * 1664525 + 1013904223;
    return state >> 8;
}

int main(void) {
    struct rlimit limit = {120ul << 20, 120ul << 20};
    int failed = 0, damaged = 0;
    setrlimit(RLIMIT_AS, &limit);
    for (int i = 0; i < TIMES; i++) {
        int n = (int)(random_number() % ROWS);
        size_t size = 2000 + random_number() % 148000;
        if (rows[n] && (rows[n][0] != (unsigned char)n || rows[n][sizes[n] - 1] != (unsigned char)n)) damaged = 1;
        unsigned char *row = rows[n] && i % 4 == 0 ? realloc(rows[n], size) : (free(rows[n]), malloc(size));
        rows[n] = row;
        if (!row) {
            failed++;
            continue;
        }
        sizes[n] = size;
        memset(row, n, size);
    }
    printf("failed %d damaged %d\n", failed, damaged);
    return 0;
}
