/* Loads libraries in turn and has two threads use each. PLUGIN is such a library: one with one access, one with three. The
   first is gone when the second comes, which may lie at the same place and has more code. */
#ifdef PLUGIN
void use(long *numbers, long count) {
    for (long i = 0; i < count; i++) {
#if PLUGIN == 1
        numbers[i] = i;
#else
        numbers[i] += numbers[i + count];
#endif
    }
}
#else
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 512 * 8, ROUNDS = 6 };
static long *numbers;
static void (*use)(long *, long);

static void *work(void *me) {
    use(numbers + (me ? 2 * COUNT : 0), COUNT);
    return NULL;
}

int main(int argc, char **argv) {
    numbers = aligned_alloc(4096, 4 * COUNT * sizeof *numbers);
    for (int round = 0; argc > 2 && round < ROUNDS; round++) {
        void *library = dlopen(argv[1 + round % 2], RTLD_NOW);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        use = (void (*)(long *, long))dlsym(library, "use");
        pthread_t threads[2];
        for (long t = 0; t < 2; t++) pthread_create(&threads[t], NULL, work, (void *)t);
        for (long t = 0; t < 2; t++) pthread_join(threads[t], NULL);
        dlclose(library);
    }
}
#endif
