/* Threads fork while others are inside malloc; the children allocate, free what they inherited, and end. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKERS = 3, CHURNERS = 3, FORKS = 25 };
static atomic_int stop, ended_well;
static char *inherited[64];

static void *churn(void *arg) {
    unsigned s = (unsigned)(size_t)arg;
    while (!stop) {
        size_t n = 1 + (s = s * 1103515245 + 12345) % 40000;
        char *p = malloc(n);
        p[0] = p[n - 1] = 1;
        p = realloc(p, 1 + s % 9000);
        free(p);
    }
    return NULL;
}

static void *forker(void *arg) {
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            for (int k = 0; k < 64; k++) {
                if (inherited[k][100] != (char)k) _exit(90);
                inherited[k] = realloc(inherited[k], 200 + 300 * k);
                if (inherited[k][100] != (char)k) _exit(91);
                free(inherited[k]);
                char *zeroes = calloc(1, 64 + 100 * k);
                if (zeroes[k]) _exit(92);
            }
            if (i % 2) exit(7);
            _exit(7);
        }
        int status = 0;
        waitpid(child, &status, 0);
        ended_well += WIFEXITED(status) && WEXITSTATUS(status) == 7;
    }
    return arg;
}

int main(void) {
    pthread_t team[FORKERS + CHURNERS];
    for (int k = 0; k < 64; k++) inherited[k] = memset(malloc(101 + 200 * k), k, 101);
    for (size_t t = 0; t < FORKERS + CHURNERS; t++) pthread_create(&team[t], NULL, t < FORKERS ? forker : churn, (void *)t);
    for (int t = 0; t < FORKERS; t++) pthread_join(team[t], NULL);
    stop = 1;
    for (int t = FORKERS; t < FORKERS + CHURNERS; t++) pthread_join(team[t], NULL);
    printf("%d of %d children ended well\n", ended_well, FORKERS * FORKS);
    return 0;
}
