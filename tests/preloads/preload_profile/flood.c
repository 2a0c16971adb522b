/* argv[1] malloc and free pairs of argv[2] bytes as fast as possible; one array of 1,000,001 bytes among them. */
#include <stdlib.h>

int main(int argc, char **argv) {
    size_t size = argc > 2 ? atol(argv[2]) : 100;
    void *volatile array = 0;
    for (long i = argc > 1 ? atol(argv[1]) : 1000; i > 0; i--) {
        void *volatile p = malloc(size);
        free(p);
        if (i == 1000) array = malloc(1000001);
    }
    free(array);
    return 0;
}
