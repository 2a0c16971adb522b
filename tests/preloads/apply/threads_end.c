/* threads_end HOW: the threads of this process end one by one. The status must be that of the process alone:
 *   raw           the main thread ends by the system call, status 7
 *   raw-late      as above, half a second later than another thread
 *   raw-outlived  as raw, but another thread returns a second later: status 0 since Linux 5.18
 *   exit-handler  the main thread ends by pthread_exit: the handlers of exit run, status 0
 *   handler-3     as above, and a handler of exit ends the process with status 3
 *   killed        another thread is killed by SIGKILL after the main thread has ended
 *   seccomp       the main thread, the only one, makes a system call for which seccomp(2) kills a thread: SIGSYS
 *   seccomp-strict  as above, in strict mode: SIGKILL */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline)) char *grab(size_t size) {
    char *p = malloc(size);
    __asm__("" : "+r"(p));
    memset(p, 1, size);
    return p;
}

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) abort();
}

static void handler(void) { say("handler\n"); }
static void handler_3(void) { _exit(3); }

static void *sleeps(void *us) {
    usleep((long)us);
    grab(400000);
    return NULL;
}

static void *kills(void *us) {
    usleep((long)us);
    syscall(SYS_tgkill, getpid(), gettid(), SIGKILL);
    return NULL;
}

static void confine(int strict) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, strict ? SECCOMP_MODE_STRICT : SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv) {
    const char *how = argv[argc - 1];
    pthread_t thread;
    atexit(strcmp(how, "handler-3") == 0 ? handler_3 : handler);
    grab(200000);
    usleep(150000);
    say("main\n");
    if (strcmp(how, "killed") == 0) pthread_create(&thread, NULL, kills, (void *)300000L);
    if (strcmp(how, "raw-late") == 0) {
        pthread_create(&thread, NULL, sleeps, (void *)1000L);
        usleep(500000);
    }
    if (strcmp(how, "raw-outlived") == 0) pthread_create(&thread, NULL, sleeps, (void *)1500000L);
    if (strncmp(how, "seccomp", 7) == 0) {
        confine(strcmp(how, "seccomp") != 0);
        getppid();
    }
    if (strncmp(how, "raw", 3) == 0) syscall(SYS_exit, 7);
    pthread_exit(NULL);
}
