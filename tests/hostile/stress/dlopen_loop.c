/* Two threads load and drop a library while two others allocate; its objects outlive it.   dlopen_loop library copy */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOOPS = 150 };
static atomic_int stop, damaged, loaded;

static void *churn(void *arg) {
    for (size_t n = 1; !stop; n = n * 7 % 30011) free(malloc(n));
    return arg;
}

static void *loader(void *arg) {
    for (int i = 0; i < LOOPS; i++) {
        void *library = dlopen(arg, i % 2 ? RTLD_NOW : RTLD_LAZY);
        char *(*make)(size_t) = library ? (char *(*)(size_t))dlsym(library, "plugin_make") : NULL;
        if (!make) return NULL;
        char *small = make(100), *large = make(20000);
        dlclose(library);
        damaged += small[99] != 9 || large[19999] != 9;
        free(small), free(large);
        loaded++;
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t team[4];
    if (argc < 3) return 1;
    for (int t = 0; t < 4; t++) pthread_create(&team[t], NULL, t < 2 ? loader : churn, argv[1 + t % 2]);
    for (int t = 0; t < 2; t++) pthread_join(team[t], NULL);
    stop = 1;
    for (int t = 2; t < 4; t++) pthread_join(team[t], NULL);
    printf("loaded %d damaged %d\n", loaded, damaged);
    return 0;
}
