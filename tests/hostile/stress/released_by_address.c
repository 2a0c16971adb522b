/* Blocks that are released through a pointer to free. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 10, BYTES = 100000 };

__attribute__((noipa)) static char *block(int mark) {
    char *p = malloc(BYTES);
    if (p) memset(p, mark, BYTES);
    return p;
}

__attribute__((noipa)) static void release_all(char **list, void (*release)(void *)) {
    for (int i = 0; i < BLOCKS; i++) release(list[i]);
}

int main(void) {
    char *list[BLOCKS];
    int damaged = 0;
    for (int i = 0; i < BLOCKS; i++) list[i] = block(i);
    for (int i = 0; i < BLOCKS; i++) damaged += !list[i] || list[i][BYTES - 1] != i;
    release_all(list, free);
    printf("damaged %d\n", damaged);
    return 0;
}
