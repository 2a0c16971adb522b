/* A handler on an alternate stack allocates while the main program does, and the process exits with
   threads still allocating. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static volatile int handled;

/* mmap is safe in a handler, malloc is not; both come through the hooks. */
static void handler(int sig) {
    (void)sig;
    void *p = mmap(0, 123000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) _exit(9);
    munmap(p, 123000);
    handled++;
}

static void *forever(void *arg) {
    for (;;) free(malloc(64 + (size_t)arg));
}

int main(void) {
    stack_t alternate = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&alternate, 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval every = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &every, 0);
    while (handled < 100) {
        void *volatile p = malloc(200);
        free(p);
    }
    struct itimerval off = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &off, 0);
    for (size_t i = 0; i < 3; i++) {
        pthread_t t;
        if (pthread_create(&t, 0, forever, (void *)i)) return 1;
    }
    usleep(20000);
    puts("signals: done");
    exit(0);
}
