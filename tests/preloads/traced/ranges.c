// Truth: memcpy by clang's hooks: 100 copies of 3 pages.
#include <stdlib.h>
#include <string.h>

int main(void) {
    char *from = aligned_alloc(4096, 3 * 4096), *to = aligned_alloc(4096, 3 * 4096);
    memset(from, 1, 3 * 4096);
    for (int n = 0; n < 100; n++) {
        memcpy(to, from, 3 * 4096);
        __asm__ volatile("" ::: "memory");
    }
    return to[4096] != 1;
}
