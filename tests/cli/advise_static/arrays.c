// Large variables of every kind: what may be placed, what may not, and what is not there.
#include <stdio.h>
#include <string.h>

#define MIB (1 << 20)
double grid[2 * MIB];                                  // .bss, 16 MiB
char filled[4 * MIB] = {1};                            // .data, 4 MiB
const char table[4 * MIB] = {1};                       // .rodata: no policy reaches it
static char hidden[3 * MIB];                           // local symbol
__thread char own[2 * MIB];                            // one per thread, no global
char *const pointers[256 * 1024] = {filled, filled};   // read-only after relocation, 2 MiB
char little[4096];

#ifdef WITH_LIBRARY
char *plugin_state(void);
#endif

int main(void) {
    memset(grid, 1, sizeof grid);
    memset(hidden, 2, sizeof hidden);
    memset(own, 3, sizeof own);
    memset(filled, 4, sizeof filled);
    long sum = 0;
    for (unsigned i = 0; i < sizeof grid; i += 512) sum += ((char *)grid)[i] + hidden[i % sizeof hidden];
    for (unsigned i = 0; i < sizeof table; i += 512) sum += table[i] + own[i % sizeof own] + filled[i];
    sum += *pointers[1] + little[0];
#ifdef WITH_LIBRARY
    memset(plugin_state(), 5, 8 * MIB);
    sum += plugin_state()[MIB];
#endif
    printf("sum %ld\n", sum);
    return 0;
}
