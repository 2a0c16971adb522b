/* What Chromium's sandbox does (credentials.cc, ChrootToSafeEmptyDir): a child that shares the memory and has zeroes in
   place of thread-local storage calls functions of the C library that need none. Argument: what it calls. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *what;

static int is(const char *name) { return !strcmp(what, name); }

static int child(void *unused) {
    (void)unused;
    char *arguments[] = {"/bin/true", NULL}, *environment[] = {NULL};
    if (is("_exit"))
        _exit(3);
    if (is("_Exit"))
        _Exit(4);
    if (is("execve"))
        execve("/bin/true", arguments, environment);
    if (is("execv"))
        execv("/bin/true", arguments);
    if (is("prctl"))
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (is("mmap")) {
        char *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memory[0] = 1;
        memory = mremap(memory, 1 << 20, 2 << 20, MREMAP_MAYMOVE);
        mprotect(memory, 4096, PROT_READ);
        madvise(memory + 4096, 4096, MADV_DONTNEED);
        munmap(memory, 2 << 20);
    }
    __asm__ volatile("syscall" ::"a"(60L), "D"(5L));
    return 0;
}

int main(int argc, char **argv) {
    static char stack[1 << 16] __attribute__((aligned(16))), nothing[1 << 16];
    what = argc > 1 ? argv[1] : "_exit";
    int pid = clone(child, stack + sizeof stack, CLONE_FS | CLONE_VM | CLONE_VFORK | CLONE_SETTLS | SIGCHLD, NULL, NULL,
                    nothing + sizeof nothing / 2, NULL);
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 1;
    char *array = malloc(1 << 20);
    memset(array, 1, 1 << 20);
    printf("%s %x, then %d\n", what, status, array[4096]);
    free(array);
    return 0;
}
