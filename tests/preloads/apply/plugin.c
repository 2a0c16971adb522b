// A library to be opened while the program runs.
#include <stdlib.h>

char plugin_state[40 * 4096];

__attribute__((noinline)) char *plugin_make(void) { char *p = malloc(6 * 4096); __asm__ volatile(""); return p; }

int plugin_run(void) {
    char *p = plugin_make();
    for (int i = 0; i < 6; i++) p[i * 4096] = 1;
    for (int i = 0; i < 40; i++) plugin_state[i * 4096] = 1;
    free(p);
    return 0;
}
