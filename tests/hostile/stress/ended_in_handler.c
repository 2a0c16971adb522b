/* Threads end in a signal handler that has interrupted calls that change mappings, by pthread_exit or by a
   cancellation that is acted on in write. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 300, BYTES = 300000, PAGE = 4096 };

static const char *how;
static volatile int begun;

static void end(int signal) {
    (void)signal;
    if (!strcmp(how, "exit")) pthread_exit(PTHREAD_CANCELED);
    if (write(-1, "", 0)) return;
}

__attribute__((noinline)) static char *map(void) {
    char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("" : "+r"(at));
    return at;
}

static void *work(void *arg) {
    begun = 1;
    while (begun) {
        char *at = map();
        mprotect(at, PAGE, PROT_READ);
        madvise(at, PAGE, MADV_DONTNEED);
        at = mremap(at, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
        munmap(at, 2 * BYTES);
    }
    return arg;
}

int main(int argc, char **argv) {
    int ended = 0;
    how = argc > 1 ? argv[1] : "";
    signal(SIGUSR1, end);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        void *result = NULL;
        if (pthread_create(&thread, NULL, work, NULL)) return 1;
        while (!begun) usleep(10);
        usleep(20 + i % 97);
        if (!strcmp(how, "cancel")) pthread_cancel(thread);
        pthread_kill(thread, SIGUSR1);
        pthread_join(thread, &result);
        begun = 0;
        ended += result == PTHREAD_CANCELED;
    }
    printf("ended %d\n", ended);
    return 0;
}
