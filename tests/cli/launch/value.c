/* value FILE: waits for SIGUSR1, makes FILE when it is ready, prints the value that comes with the signal. */
#include <signal.h>
#include <stdio.h>

int main(int argc, char **argv) {
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (argc < 2 || !fopen(argv[1], "w")) return 2;
    if (sigwaitinfo(&set, &info) != SIGUSR1) return 3;
    printf("value %d\n", info.si_value.sival_int);
    return 5;
}
