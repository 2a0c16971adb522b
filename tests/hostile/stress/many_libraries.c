/* many_libraries COUNT: loads lib0.so to lib<COUNT - 1>.so and allocates in each. Writes the CPU time to standard error,
 * us. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1, damaged = 0;
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "./lib%d.so", i);
        void *handle = dlopen(name, RTLD_NOW);
        void *(*make)(void) = handle ? (void *(*)(void))dlsym(handle, "make") : NULL;
        damaged += !make;
        if (make) free(make());
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr, "%ld\n", (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    printf("damaged %d\n", damaged);
    return 0;
}
