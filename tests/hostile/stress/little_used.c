/* Arrays of which one page each is used, made larger or smaller by realloc; prints the most resident memory, KiB.
 * little_used NUMBER SIZE NEW_SIZE: arrays of SIZE bytes by `made`, each resized by `resized`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static char *made(size_t size) {
    char *block = malloc(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

__attribute__((noinline)) static char *resized(char *block, size_t size) {
    block = realloc(block, size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int number = atoi(argv[1]), damaged = 0;
    size_t size = strtoul(argv[2], 0, 10), new_size = strtoul(argv[3], 0, 10);
    size_t used = (size < new_size ? size : new_size) / 2;
    for (int i = 0; i < number; i++) {
        char *block = made(size);
        if (!block) return 3;
        block[used] = 42;
        block = resized(block, new_size);
        if (!block) return 3;
        damaged += block[used] != 42 || block[used - 8192] != 0;
    }
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "VmHWM:", 6)) fprintf(stderr, "%ld\n", strtol(line + 6, 0, 10));
    printf("damaged %d\n", damaged);
    return 0;
}
