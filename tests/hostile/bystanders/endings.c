/* Ends in the way its argument says. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *churn(void *arg) {
    for (;;) {
        char *p = malloc(100 + rand() % 100000);
        if (p) p[0] = 1;
        free(p);
    }
    return arg;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "return";
    char *p = calloc(1000, 10);
    if (!p) return 1;
    printf("%s\n", how);
    fflush(stdout);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "segv")) raise(SIGSEGV);
    if (!strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "term")) raise(SIGTERM);
    if (!strcmp(how, "_exit")) _exit(5);
    if (!strcmp(how, "threads")) { /* leaves while others allocate */
        for (int i = 0; i < 4; i++) {
            pthread_t t;
            pthread_create(&t, NULL, churn, NULL);
        }
        usleep(20000);
        exit(6);
    }
    if (!strcmp(how, "fork")) {
        for (int i = 0; i < 5; i++) {
            pid_t child = fork();
            if (child == 0) {
                free(malloc(5000));
                exit(i);
            }
            int status = 0;
            waitpid(child, &status, 0);
            printf("%d\n", WEXITSTATUS(status));
        }
    }
    if (!strcmp(how, "vfork")) {
        pid_t child = vfork();
        if (child == 0) execlp("true", "true", (char *)NULL), _exit(127);
        int status = 0;
        waitpid(child, &status, 0);
        printf("%d\n", status);
    }
    free(p);
    return 7;
}
