/* Arrays of which one page each is used, made larger or smaller by realloc; prints the most resident memory, KiB.
 * little_used NUMBER SIZE NEW_SIZE: arrays of SIZE bytes by `made`, each resized by `resized`.
 * little_used NUMBER SIZE NEW_SIZE STEP: they grow by STEP bytes, one after another, and their last byte is written each
 * time, until all have NEW_SIZE bytes. */
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

/* Returns how many bytes are not what was written. */
static int grow(int number, size_t size, size_t new_size, size_t step) {
    int damaged = 0;
    char **blocks = calloc(number, sizeof *blocks);
    for (int i = 0; i < number; i++)
        if (!(blocks[i] = made(size))) exit(3);
    for (size_t now = size + step; now <= new_size; now += step)
        for (int i = 0; i < number; i++) {
            if (!(blocks[i] = resized(blocks[i], now))) exit(3);
            blocks[i][now - 1] = 42;
        }
    for (int i = 0; i < number; i++)
        for (size_t now = size + step; now <= new_size; now += step)
            damaged += blocks[i][now - 1] != 42 || blocks[i][now - 1 - step / 2] != 0;
    return damaged;
}

static int resize(int number, size_t size, size_t new_size) {
    int damaged = 0;
    size_t used = (size < new_size ? size : new_size) / 2;
    for (int i = 0; i < number; i++) {
        char *block = made(size);
        if (!block) exit(3);
        block[used] = 42;
        block = resized(block, new_size);
        if (!block) exit(3);
        damaged += block[used] != 42 || block[used - 8192] != 0;
    }
    return damaged;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int number = atoi(argv[1]);
    size_t size = strtoul(argv[2], 0, 10), new_size = strtoul(argv[3], 0, 10);
    int damaged = argc > 4 ? grow(number, size, new_size, strtoul(argv[4], 0, 10)) : resize(number, size, new_size);
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "VmHWM:", 6)) fprintf(stderr, "%ld\n", strtol(line + 6, 0, 10));
    printf("damaged %d\n", damaged);
    return 0;
}
