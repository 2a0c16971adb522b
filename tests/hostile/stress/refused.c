/* Blocks that realloc and reallocarray are asked to make larger than any memory: no block, ENOMEM, and the old one as it
 * was. Prints what differs. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline, noclone)) static char *taken(size_t bytes, size_t align) {
    void *block = NULL;
    if (align) return posix_memalign(&block, align, bytes) ? NULL : block;
    block = malloc(bytes);
    __asm__ volatile("");
    return block;
}

int main(void) {
    static const size_t sizes[] = {1, 100, 5000, 130048, 131072, 300000, 1 << 20, 2088960, 2093056, 2097152, 5 << 20};
    static const size_t aligns[] = {0, 64, 128, 4096, 2 << 20};
    int wrong = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t a = 0; a < sizeof aligns / sizeof *aligns; a++) {
            char *block = taken(sizes[s], aligns[a]);
            memset(block, 7, sizes[s]);
            for (size_t less = 0; less < 12000; less += less < 20 ? 1 : 61) {
                volatile size_t huge = SIZE_MAX - less, third = huge / 3;
                errno = 0;
                char *other = realloc(block, huge);
                int refused = !other && errno == ENOMEM;
                errno = 0;
                other = other ? other : reallocarray(block, third, 3);
                refused &= !other && errno == ENOMEM;
                if (!refused && wrong++ < 5) printf("%zu bytes at %zu: SIZE_MAX - %zu\n", sizes[s], aligns[a], less);
                if (other) block = other;
            }
            int same = malloc_usable_size(block) >= sizes[s];
            for (size_t i = 0; same && i < sizes[s]; i++) same = block[i] == 7;
            if (!same && wrong++ < 5) printf("%zu bytes at %zu: not what they were\n", sizes[s], aligns[a]);
            free(block);
        }
    printf("wrong %d\n", wrong);
    return 0;
}
