/* Ends in every way there is while its threads allocate.   leave how */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *churn(void *arg) {
    for (size_t n = 1 + (size_t)arg;; n = n * 7 % 60013) {
        char *p = calloc(1, n);
        if (p) p[n / 2] = 1;
        free(realloc(p, n / 2 + 1));
    }
    return arg;
}

static void *ender(void *arg) {
    usleep(20000);
    if (!strcmp(arg, "thread")) exit(13);
    return NULL;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "return";
    pthread_t t;
    for (size_t i = 0; i < 4; i++) pthread_create(&t, NULL, churn, (void *)i);
    puts(how);
    fflush(stdout);
    pthread_create(&t, NULL, ender, (void *)how);
    usleep(15000);
    if (!strcmp(how, "exit")) exit(11);
    if (!strcmp(how, "_exit")) _exit(12);
    if (!strcmp(how, "quick_exit")) quick_exit(14);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "segv")) *(volatile int *)8 = 1;
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "thread")) pthread_exit(NULL);
    return 15;
}
