/* Wants to be traced by its parent and stops; says its process id before. */
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <unistd.h>

int zeroes[1 << 16]; /* a global of the policy */

int main(void) {
    FILE *file = fopen("new", "w");
    fprintf(file, "%d\n", getpid());
    fclose(file);
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0 || rename("new", "pid") != 0)
        return 1;
    raise(SIGSTOP);
    return 5 + zeroes[0];
}
