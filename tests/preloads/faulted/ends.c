/* Ends in a window, as its argument says; "at-once" before one. */
#include "window.h"
#include <signal.h>

static void *wait_for_ever(void *all) {
    pause();
    return all;
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "";
    if (strcmp(how, "at-once") == 0)
        return 4;
    uint64_t *all = filled(64);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_ever, all);
    wait_for_window(all, 64);
    if (strcmp(how, "exit") == 0)
        exit(5);
    if (strcmp(how, "_exit") == 0)
        _exit(6);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "crash") == 0)
        *(volatile int *)8 = 1;
    if (strcmp(how, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(how, "exec") == 0)
        execlp("sh", "sh", "-c", "exit 7", NULL);
    if (strcmp(how, "last-thread") == 0) {
        pthread_cancel(thread);
        pthread_exit(NULL);
    }
    return 1;
}
