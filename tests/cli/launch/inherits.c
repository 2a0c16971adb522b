// inherits FILE STATUS [wait]: appends the blocked and the ignored signals of this process to FILE and exits with
// STATUS; with `wait` only after SIGTERM, which its parent has blocked.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char zeroes[64 << 12];

int main(int argc, char **argv)
{
    memset(zeroes, 1, sizeof zeroes);
    FILE *status = fopen("/proc/self/status", "r"), *out = fopen(argv[1], "a");
    char line[256];
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "SigBlk:", 7) || !strncmp(line, "SigIgn:", 7))
            fputs(line, out);
    fclose(out);
    if (argc > 3) {
        sigset_t term;
        int got;
        sigemptyset(&term);
        sigaddset(&term, SIGTERM);
        sigwait(&term, &got);
    }
    return atoi(argv[2]);
}
