/* Arrays that grow side by side, are freed together, and are built again.   side_by_side MODE
 *   vector    8 times 100 arrays of 135 KB to 2.3 MB that grow by a half, each into a new block, as std::vector does
 *   realloc   6 times the same, by realloc
 * Writes: the most memory, KiB. Figures are written to standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { ARRAYS = 100, LEAST = 134976, MOST = 2933451 };

__attribute__((noinline)) static char *larger(char *old, size_t size) {
    char *block = realloc(old, size);
    __asm__ volatile("" ::"r"(block));
    return block;
}

__attribute__((noinline)) static char *fresh(size_t size) {
    char *block = malloc(size);
    __asm__ volatile("" ::"r"(block));
    return block;
}

int main(int count, char **arguments) {
    static char *arrays[ARRAYS];
    int is_vector = count > 1 && !strcmp(arguments[1], "vector"), damaged = 0;
    for (int turn = 0; turn < (is_vector ? 8 : 6); turn++) {
        size_t before = 0;
        for (size_t size = LEAST; size < MOST; before = size, size += size / 2) {
            for (int i = 0; i < ARRAYS; i++) {
                if (!is_vector) {
                    arrays[i] = larger(arrays[i], size);
                } else {
                    char *old = arrays[i];
                    arrays[i] = fresh(size);
                    if (old) memcpy(arrays[i], old, before);
                    free(old);
                }
                damaged += before && (arrays[i][0] != i || arrays[i][before - 1] != i);
                memset(arrays[i], i, size);
            }
        }
        for (int i = 0; i < ARRAYS; i++) {
            free(arrays[i]);
            arrays[i] = NULL;
        }
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr, "%ld\n", used.ru_maxrss);
    printf("damaged %d\n", damaged);
    return 0;
}
