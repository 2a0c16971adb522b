/* Threads load and drop libraries of their own at the same time; one of them forks in between.
 * come_and_go LOOPS LIBRARY...: one thread for each library. Each loop allocates three times in the library.
 * No thread is inside the loader when another forks: glibc leaves one of its locks (dl_load_write_lock) to the child as
 * it is, so that the child's dlopen would wait for ever, without any preload, too. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int loops;
static atomic_int damaged, loaded, forks;
static pthread_rwlock_t in_loader = PTHREAD_RWLOCK_INITIALIZER;

static void *load(const char *path) {
    pthread_rwlock_rdlock(&in_loader);
    void *library = dlopen(path, RTLD_NOW);
    pthread_rwlock_unlock(&in_loader);
    return library;
}

static void drop(void *library) {
    pthread_rwlock_rdlock(&in_loader);
    dlclose(library);
    pthread_rwlock_unlock(&in_loader);
}

static pid_t fork_between(void) {
    pthread_rwlock_wrlock(&in_loader);
    pid_t child = fork();
    if (child == 0) pthread_rwlock_init(&in_loader, NULL); // held by a thread that has another number here
    else pthread_rwlock_unlock(&in_loader);
    return child;
}

static int once(const char *path) {
    void *library = load(path);
    char *(*make)(size_t) = library ? (char *(*)(size_t))dlsym(library, "plugin_make") : NULL;
    if (!make) return 0;
    char *block = make(20000);
    damaged += block[0] != 9 || block[19999] != 9;
    drop(library);
    free(block);
    return 1;
}

static void *loader(void *path) {
    for (int i = 0; i < loops; i++) {
        loaded += once(path);
        if (i % 50 == 25) {
            pid_t child = fork_between();
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
