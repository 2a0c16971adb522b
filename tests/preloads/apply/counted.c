/* Counts the system calls that hold signals back, while small arrays come and go:   counted BEFORE ARRAYS
 * Prints how many such calls ARRAYS arrays take after BEFORE others. The filter is set by system calls that the library
 * does not see, so that it goes on as before. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int calls;

/* The call is left out, and succeeds. */
static void called(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 0;
    calls++;
}

static void count(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    struct sigaction action = {.sa_sigaction = called, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    if (syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
        exit(97);
}

__attribute__((noinline)) static char *grab(size_t bytes) {
    char *array = malloc(bytes);
    memset(array, 1, bytes);
    return array;
}

static void grab_each(int arrays) {
    char *kept[16] = {NULL};
    for (int i = 0; i < arrays; i++) {
        free(kept[i % 16]);
        kept[i % 16] = grab(200);
    }
    for (int i = 0; i < 16; i++) free(kept[i]);
}

int main(int argc, char **argv) {
    if (argc < 3) return 1;
    grab_each(atoi(argv[1]));
    count();
    grab_each(atoi(argv[2]));
    printf("%d\n", calls);
    return 0;
}
