/* argv[1] times: allocates argv[2] blocks of argv[3] bytes, writes to each, frees all. Writes the CPU time that the
   process has used, in nanoseconds as the kernel counts it, to standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv) {
    if (argc < 4) return 3;
    long batches = atol(argv[1]), blocks = atol(argv[2]), size = atol(argv[3]);
    char **p = calloc(blocks, sizeof *p);
    for (long b = 0; b < batches; b++) {
        for (long i = 0; i < blocks; i++) {
            p[i] = malloc(size);
            if (!p[i]) return 3;
            p[i][size / 2] = i;
        }
        for (long i = 0; i < blocks; i++) {
            if (p[i][size / 2] != (char)i) return 4;
            free(p[i]);
        }
    }
    free(p);
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    fprintf(stderr, "%lld\n", used.tv_sec * 1000000000LL + used.tv_nsec);
    return 0;
}
