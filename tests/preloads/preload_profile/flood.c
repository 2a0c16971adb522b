/* argv[1] malloc and free pairs as fast as possible. */
#include <stdlib.h>

int main(int argc, char **argv) {
    for (long i = argc > 1 ? atol(argv[1]) : 1000; i > 0; i--) {
        void *volatile p = malloc(100);
        free(p);
    }
    return 0;
}
