/* Arrays of sizes in turn, of which little is kept for each.   in_turn MODE
 *   sizes     300,000 times an array of one of seven sizes, of which a little is written
 *   one       as many of one size
 *   swings    a buffer that realloc takes between 3 and 5 MiB 10,000 times, written each time
 * Before that an array of 20 MiB is freed: glibc has what is smaller in its heap then.
 * Writes the CPU time in ms to standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { TIMES = 300000, LEAST = 700000, MORE = 50000, LITTLE = 10000, SWINGS = 10000 };

__attribute__((noinline)) static char *larger(char *old, size_t size) {
    char *block = realloc(old, size);
    __asm__ volatile("" ::"r"(block));
    return block;
}

static long ms(struct timeval time) { return time.tv_sec * 1000 + time.tv_usec / 1000; }

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "";
    int damaged = 0;
    free(larger(NULL, 20 << 20));
    if (!strcmp(how, "swings")) {
        char *buffer = NULL;
        for (int i = 0; i < SWINGS; i++) {
            size_t size = i & 1 ? 5 << 20 : 3 << 20;
            buffer = larger(buffer, size);
            memset(buffer, i, size);
            damaged += buffer[size - 1] != (char)i;
        }
        free(buffer);
    } else {
        int sizes = !strcmp(how, "sizes") ? 7 : 1;
        for (int i = 0; i < TIMES; i++) {
            char *array = larger(NULL, LEAST + i % sizes * MORE);
            memset(array, i, LITTLE);
            damaged += array[LITTLE - 1] != (char)i;
            free(array);
        }
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr, "%ld\n", ms(used.ru_utime) + ms(used.ru_stime));
    printf("damaged %d\n", damaged);
    return 0;
}
