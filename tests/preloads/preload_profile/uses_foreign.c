#include <stdio.h>
#include <stdlib.h>

extern int foreign_calls;

__attribute__((noinline)) void *allocate(size_t n) { void *volatile p = malloc(n); return p; }

int main(void) {
    int before = foreign_calls;
    char *p = allocate(15001);
    p = realloc(p, 15002);
    free(p);
    printf("%d\n", foreign_calls - before);
    return 0;
}
