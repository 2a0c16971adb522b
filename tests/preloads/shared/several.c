/* Small objects of three call sites, 20,000 of them alive at the end, one of which realloc makes larger 5,000 times; and
 * three of the first call site that realloc makes larger 20 times at a fourth. Prints how many bytes differ from what they
 * should be. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 10000, TIMES = 5000, STEP = 20 };

__attribute__((noinline, noclone)) static char *first(void) {
    char *p = malloc(100);
    return p ? memset(p, 1, 100) : NULL;
}

__attribute__((noinline, noclone)) static char *second(void) {
    char *p = malloc(200);
    return p ? memset(p, 2, 200) : NULL;
}

__attribute__((noinline, noclone)) static char *grown(char *p, size_t bytes) { return realloc(p, bytes); }

__attribute__((noinline, noclone)) static char *pushed(char *p, size_t bytes) { return realloc(p, bytes); }

int main(void) {
    static char *held[2][OBJECTS];
    long damaged = 0;
    char *array = NULL;
    for (int i = 0; i < OBJECTS; i++) {
        held[0][i] = first();
        held[1][i] = second();
        if (!held[0][i] || !held[1][i]) return 3;
        if (i >= TIMES) continue;
        if (!(array = grown(array, (size_t)(i + 1) * STEP))) return 3;
        memset(array + i * STEP, 3, STEP);
    }
    for (int i = 0; i < 3; i++) {
        char *p = first();
        for (size_t bytes = 200; p && bytes <= 4000; bytes += 200) {
            p = pushed(p, bytes);
            if (p) damaged += p[99] != 1;
        }
        if (!p) return 3;
    }
    for (int i = 0; i < OBJECTS; i++) damaged += held[0][i][99] != 1 || held[1][i][199] != 2;
    for (int i = 0; i < TIMES * STEP; i++) damaged += array[i] != 3;
    printf("damaged %ld\n", damaged);
    return 0;
}
