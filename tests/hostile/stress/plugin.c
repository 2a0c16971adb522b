/* What dlopen_loop.c loads and drops. */
#include <stdlib.h>
#include <string.h>

char plugin_table[1 << 16] = {1};
static char plugin_zeroes[1 << 16];

char *plugin_make(size_t n) {
    plugin_zeroes[n % sizeof plugin_zeroes] = plugin_table[0];
    return memset(malloc(n), 9, n);
}

__attribute__((constructor)) static void begin(void) { free(malloc(5000)); }
__attribute__((destructor)) static void end(void) { free(malloc(6000)); }
