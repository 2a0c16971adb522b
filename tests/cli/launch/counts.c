/* counts FILE: writes a byte to FILE at its start and for each SIGUSR1, until none came for two seconds after the first;
 * prints how many did. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t count;
static int file;

static void counted(int signal) {
    (void)signal;
    count++;
    if (write(file, "+", 1) != 1) _exit(3);
}

int main(int argc, char **argv) {
    struct sigaction action = {.sa_handler = counted, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    if (argc < 2 || (file = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600)) < 0 || write(file, "+", 1) != 1) return 2;
    int before, quiet = 0;
    for (int i = 0; i < 6000 && (!count || quiet < 200); i++) {
        before = count;
        usleep(10000);
        quiet = count == before ? quiet + 1 : 0;
    }
    printf("signals %d\n", count);
    return 0;
}
