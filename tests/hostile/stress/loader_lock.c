/* Threads hold the lock of the loader's list of modules while others allocate: at a fork, and in a callback.
 *
 * loader_lock fork HOW LIBRARY   a thread loads and closes LIBRARY (HOW has l), or walks the list (HOW has w), again
 *                                and again, while the main thread forks children that allocate.
 * loader_lock wait WHAT LIBRARY OTHER
 *                                the main thread opens both libraries; then its callback of dl_iterate_phdr waits until
 *                                another thread has done WHAT: malloc, map, thread, open, child.
 * A child or callback that hangs ends by SIGALRM. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 150, CHILD_SECONDS = 10, WAIT_SECONDS = 20 };
static atomic_int stop, turn;
static const char *how, *library;
static void *held;

static int pass(struct dl_phdr_info *info, size_t size, void *data) {
    for (volatile int i = 0; i < 300; i++) {}
    return info == data && size == 0;
}

static void *hold_often(void *arg) {
    while (!stop) {
        if (strchr(how, 'w')) dl_iterate_phdr(pass, NULL);
        void *handle = strchr(how, 'l') ? dlopen(library, RTLD_NOW) : NULL;
        if (handle) dlclose(handle);
    }
    return arg;
}

/* Not inlined: rules name it. */
__attribute__((noinline)) static void *allocate(size_t bytes) {
    char *block = malloc(bytes);
    block[0] = block[bytes - 1] = 1;
    return block;
}

static void use_memory(void) {
    for (int i = 0; i < 3; i++) {
        free(allocate(100000));
        free(allocate(50));
    }
}

static void *use_memory_too(void *arg) {
    use_memory();
    return arg;
}

static void end_well(pid_t child) {
    int status = 1;
    waitpid(child, &status, 0);
    if (status) printf("a child ended with %x\n", status), exit(1);
}

static int fork_often(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, hold_often, NULL);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(CHILD_SECONDS);
            use_memory();
            munmap(mmap(NULL, 40000, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 40000);
            _exit(0);
        }
        end_well(child);
    }
    stop = 1;
    pthread_join(thread, NULL);
    printf("%d children ended well\n", FORKS);
    return 0;
}

static void *do_what(void *arg) {
    pthread_t thread;
    while (turn == 0) usleep(100);
    if (!strcmp(how, "malloc")) {
        use_memory();
    } else if (!strcmp(how, "map")) {
        munmap(mmap(NULL, 40000, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 40000);
    } else if (!strcmp(how, "thread")) {
        pthread_create(&thread, NULL, use_memory_too, NULL);
        pthread_join(thread, NULL);
    } else if (!strcmp(how, "open")) {
        if (dlopen(library, RTLD_NOW) != held) puts("another library");
        dlclose(held);
        use_memory();
    } else {
        pid_t child = fork();
        if (child == 0) {
            use_memory();
            exit(0);
        }
        end_well(child);
    }
    turn = 2;
    return arg;
}

static int wait_for_other(struct dl_phdr_info *info, size_t size, void *data) {
    turn = turn ? turn : 1;
    while (turn == 1) usleep(100);
    return pass(info, size, data);
}

static int wait_in_callback(const char *other) {
    pthread_t thread;
    alarm(WAIT_SECONDS);
    held = dlopen(library, RTLD_NOW);
    pthread_create(&thread, NULL, do_what, NULL);
    if (!held || !dlopen(other, RTLD_NOW)) puts(dlerror());
    dl_iterate_phdr(wait_for_other, NULL);
    pthread_join(thread, NULL);
    puts("the callback returned");
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    how = argv[2];
    library = argv[3];
    return argc == 4 ? fork_often() : wait_in_callback(argv[4]);
}
