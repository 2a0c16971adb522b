/* A signal handler that allocates while the program maps and unmaps memory, changes signal masks and sleeps. Without us
 * that is safe as long as the program itself is never inside malloc when a signal comes; so it must be with us, and
 * what is placed while it comes must be whole. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static volatile int handled, damaged;
static char *kept[32];

static void handler(int sig) {
    int n = handled++;
    char *p = malloc(50 + (size_t)n * 97 % 20000), *old = kept[n % 32];
    if (old && old[49] != (char)(n % 32)) damaged++;
    memset(p, n % 32, 50);
    kept[n % 32] = p;
    if (n % 2) free(old);
    else if (old) free(realloc(old, 7000));
    (void)sig;
}

int main(void) {
    stack_t alternate = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&alternate, NULL);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    /* One handler must not interrupt malloc in the other. */
    sigaddset(&action.sa_mask, SIGALRM);
    sigaddset(&action.sa_mask, SIGVTALRM);
    sigaction(SIGALRM, &action, NULL);
    action.sa_flags |= SA_ONSTACK;
    sigaction(SIGVTALRM, &action, NULL);
    struct itimerval often = {{0, 300}, {0, 300}}, off = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    setitimer(ITIMER_VIRTUAL, &often, NULL);
    while (handled < 600) {
        char *p = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) return 1;
        memset(p, 1, 1 << 16);
        p = mremap(p, 1 << 18, 1 << 19, MREMAP_MAYMOVE);
        if (p == MAP_FAILED || p[100] != 1) return 2;
        munmap(p, 1 << 19);
    }
    setitimer(ITIMER_REAL, &off, NULL);
    setitimer(ITIMER_VIRTUAL, &off, NULL);
    printf("damaged %d\n", damaged);
    return 0;
}
