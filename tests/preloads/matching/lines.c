/* Every call that a rule names by its line. The numbers of the lines are in the test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline __attribute__((always_inline)) void *wrapped(size_t n) {
    return malloc(n); /* line 7: inlined, and still the line of the call */
}

int main(void) {
    char *a = malloc(100 << 10); /* line 11 */
    char *b = calloc(200 << 10, 1); /* line 12 */
    char *c = wrapped(300 << 10); /* line 13 */
    char *d = strdup(memset(malloc(400 << 10), 0, 1)), *e; /* line 14: strdup's is the C library's for this line */
    for (int i = 0; i < 3; i++) e = malloc(500 << 10), memset(e, 1, 500 << 10); /* line 15 */
    memset(a, 1, 100 << 10), memset(b, 1, 200 << 10), memset(c, 1, 300 << 10);
    puts(*d ? "odd" : "ok");
    return *e != 1;
}
