/* vfork with exec, posix_spawn, and vfork whose exec fails, from threads, while others allocate. */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static atomic_int stop, statuses;

static void *churn(void *arg) {
    for (size_t n = 1; !stop; n = n * 7 % 60013) free(malloc(n));
    return arg;
}

/* Apart from the loop, whose variables the child of vfork could clobber. */
__attribute__((noinline)) static int by_vfork(const char *program, char **words) {
    int status = 0;
    pid_t child = vfork();
    if (child == 0) {
        execve(program, words, environ);
        _exit(4);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static void *starter(void *arg) {
    char *words[] = {"/bin/sh", "-c", "exit 3", NULL};
    for (int i = 0; i < 12; i++) {
        int status = 0;
        pid_t child = 0;
        statuses += by_vfork(i % 3 ? "/bin/sh" : "/nonexistent", words);
        if (posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ)) return NULL;
        waitpid(child, &status, 0);
        statuses += WEXITSTATUS(status);
    }
    return arg;
}

int main(void) {
    pthread_t team[4];
    for (size_t t = 0; t < 4; t++) pthread_create(&team[t], NULL, t < 2 ? starter : churn, (void *)t);
    for (int t = 0; t < 2; t++) pthread_join(team[t], NULL);
    stop = 1;
    for (int t = 2; t < 4; t++) pthread_join(team[t], NULL);
    printf("statuses %d\n", statuses);
    return 0;
}
