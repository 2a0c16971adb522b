/* answers work READY: counts SIGUSR1, answers each to its sender, and sends its parent one SIGUSR2; prints the counts.
 * answers ask READY COMMAND...: starts COMMAND, sends it one SIGUSR1 when READY exists, and prints how many answers came.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t answers, own, asked;

static void count(int signal, siginfo_t *info, void *context) {
    (void)context;
    if (signal == SIGUSR2) {
        own++;
        return;
    }
    answers++;
    if (asked && info->si_pid > 0) kill(info->si_pid, SIGUSR1);
}

static int work(const char *ready) {
    asked = 1;
    kill(getppid(), SIGUSR2);
    if (!fopen(ready, "w")) return 2;
    for (int i = 0; i < 6000 && !answers; i++) usleep(10000);
    for (int i = 0; i < 30; i++) usleep(10000); /* more may come; a signal ends the sleep */
    printf("signals %d, own %d\n", answers, own);
    return 5;
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_sigaction = count, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    if (argc < 3) return 2;
    if (!strcmp(argv[1], "work")) return work(argv[2]);
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[3], argv + 3);
        _exit(127);
    }
    for (int i = 0; i < 6000 && access(argv[2], F_OK); i++) usleep(10000);
    kill(child, SIGUSR1);
    int status;
    while (waitpid(child, &status, 0) != child) {}
    printf("answers %d, status %d\n", answers, WEXITSTATUS(status));
    return 0;
}
