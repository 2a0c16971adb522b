/* fork, vfork + exec, exec in place: argv[1] says which image this is. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

__attribute__((noinline)) void allocate(size_t n) { void *volatile p = malloc(n); free(p); }

int main(int argc, char **argv) {
    int status;
    if (argc > 1 && !strcmp(argv[1], "child")) {
        allocate(90004);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "again")) {
        allocate(90005);
        puts("second image");
        return 0;
    }
    allocate(90001);
    pid_t pid = fork();
    if (pid == 0) {
        allocate(90002);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    if (status) return 1;
    char *child[] = {argv[0], "child", 0};
    if (posix_spawn(&pid, argv[0], 0, 0, child, environ)) return 2;
    waitpid(pid, &status, 0);
    if (status) return 3;
    allocate(90003);
    execl(argv[0], argv[0], "again", (char *)0);
    return 4;
}
