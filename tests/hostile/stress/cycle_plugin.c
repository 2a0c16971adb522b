/* What cycles.c and come_and_go.c load and drop: it allocates in its constructor, in a function and in its destructor. */
#include <stdlib.h>
#include <string.h>

static void *volatile keeper;

__attribute__((noinline)) char *plugin_make(size_t n) {
    keeper = malloc(n);
    return memset(keeper, 9, n);
}

__attribute__((constructor, noinline)) static void plugin_begin(void) {
    keeper = malloc(5000);
    free(keeper);
}

__attribute__((destructor, noinline)) static void plugin_end(void) {
    keeper = malloc(6000);
    free(keeper);
}
