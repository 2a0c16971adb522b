/* As a library, preloaded after others: hooks _exit and _Exit, writes a line and passes the call on, to the next
 * library or (compiled with -DBY_NAME) to _Exit by name. As a program (-DPROGRAM): ends in the way that is asked for. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef PROGRAM
int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    char *volatile block = malloc(100000); /* gcc 16 leaves it out otherwise */
    memset(block, 1, 100000);
    if (!strcmp(way, "fork") || !strcmp(way, "vfork")) {
        int status = 0;
        pid_t child = way[0] == 'f' ? fork() : vfork();
        if (child == 0) _exit(5);
        waitpid(child, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) + 1 : 0);
    }
    if (!strcmp(way, "_Exit")) _Exit(7);
    if (!strcmp(way, "quick_exit")) quick_exit(8);
    if (!strcmp(way, "exit")) exit(9);
    _exit(6);
}
#else
static void say(const char *line) {
    if (write(1, line, strlen(line)) < 0) syscall(SYS_exit_group, 98);
}

void _exit(int status) {
    say("hook of _exit\n");
#ifdef BY_NAME
    _Exit(status);
#else
    ((void (*)(int))dlsym(RTLD_NEXT, "_exit"))(status);
#endif
    for (;;) syscall(SYS_exit_group, 97);
}

void _Exit(int status) {
    say("hook of _Exit\n");
    ((void (*)(int))dlsym(RTLD_NEXT, "_Exit"))(status);
    for (;;) syscall(SYS_exit_group, 97);
}
#endif
