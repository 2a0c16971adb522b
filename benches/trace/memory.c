// memory MODE MIB: two threads sweep MIB of memory four times; MODE 0: three arrays, 1: objects of 4 to 64 KiB.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static double *a, *b, *c, **objects;
static long words, count, *sizes;

static void *triad(void *number) {
    long me = (long)number;
    for (int round = 0; round < 4; round++)
        for (long i = me * words / 2; i < (me + 1) * words / 2; i++)
            a[i] = b[i] + 3 * c[i];
    return NULL;
}

static void *sweep(void *number) {
    long me = (long)number;
    for (int round = 0; round < 4; round++)
        for (long object = me * count / 2; object < (me + 1) * count / 2; object++)
            for (long i = 0; i < sizes[object]; i++)
                objects[object][i] += round;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    int many = atoi(argv[1]);
    long bytes = atol(argv[2]) << 20;
    if (many) {
        objects = malloc(bytes / 4096 * sizeof *objects);
        sizes = malloc(bytes / 4096 * sizeof *sizes);
        unsigned random = 1;
        for (long total = 0; total < bytes; total += sizes[count++] * 8) {
            random = random * 1664525u + 1013904223u;
            sizes[count] = 512 + (random >> 16) % 7680;
            objects[count] = calloc(sizes[count], 8);
        }
    } else {
        words = bytes / 24;
        a = malloc(words * 8), b = malloc(words * 8), c = malloc(words * 8);
        for (long i = 0; i < words; i++)
            a[i] = b[i] = c[i] = i;
    }
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, many ? sweep : triad, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
