/* Threads load and drop libraries of their own at the same time; one of them forks in between.
 * come_and_go LOOPS LIBRARY...: one thread for each library. Each loop allocates three times in the library. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int loops;
static atomic_int damaged, loaded, forks;

static int once(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    char *(*make)(size_t) = library ? (char *(*)(size_t))dlsym(library, "plugin_make") : NULL;
    if (!make) return 0;
    char *block = make(20000);
    damaged += block[0] != 9 || block[19999] != 9;
    dlclose(library);
    free(block);
    return 1;
}

static void *loader(void *path) {
    for (int i = 0; i < loops; i++) {
        loaded += once(path);
        if (i % 50 == 25) {
            pid_t child = fork();
            if (child == 0) {
                int good = 1;
                for (int n = 0; n < 20; n++) good &= once(path);
                _exit(good && !damaged ? 0 : 1);
            }
            int status = 1;
            waitpid(child, &status, 0);
            forks += status == 0;
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t team[16];
    int threads = argc - 2;
    if (threads < 1 || threads > 16) return 1;
    loops = atoi(argv[1]);
    for (int t = 0; t < threads; t++) pthread_create(&team[t], NULL, loader, argv[2 + t]);
    for (int t = 0; t < threads; t++) pthread_join(team[t], NULL);
    printf("loaded %d damaged %d forks %d\n", loaded, damaged, forks);
    return 0;
}
