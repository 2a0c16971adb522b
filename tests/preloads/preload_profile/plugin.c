/* Loaded and unloaded; SIZE and PAD differ, so that two plugins have different code at one address. */
#include <stdlib.h>

__attribute__((noinline)) void *plugin_inner(size_t n) {
    volatile char pad[PAD];
    pad[0] = 1;
    void *volatile p = malloc(n);
    return p;
}

void *plugin_allocate(void) {
    void *volatile p = plugin_inner(SIZE);
    return p;
}
