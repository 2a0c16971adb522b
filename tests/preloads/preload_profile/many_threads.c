/* argv[1] short-lived threads, one after the other in small batches. */
#include <pthread.h>
#include <stdlib.h>

static void *routine(void *arg) { free(malloc(80000 + (size_t)arg)); return arg; }

int main(int argc, char **argv) {
    size_t total = argc > 1 ? strtoul(argv[1], 0, 10) : 100;
    pthread_t t[8];
    for (size_t i = 0; i < total; i += 8) {
        for (size_t j = 0; j < 8; j++)
            if (pthread_create(&t[j], 0, routine, (void *)(i + j))) abort();
        for (size_t j = 0; j < 8; j++) pthread_join(t[j], 0);
    }
    return 0;
}
