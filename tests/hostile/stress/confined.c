/* Confines itself with seccomp after start-up, then does what workers do.   confined MODE ENTRY LIBRARY NUMBER...
 * Only the system calls of these numbers are allowed. Any other one prints its number and ends the program with status
 * 99, so that the list of what a run needs can be found by trying (`kill` as the last argument: the kernel kills).
 * MODE: free and unmap only release what was allocated before, of sizes that glibc's heap serves by then; unmap another
 * array that glibc unmaps. shrink makes arrays smaller that were allocated before.
 * ENTRY: filter, no_new_privs (set by prctl, the filter by syscall, as libseccomp does), tsync (so, for all threads),
 * strict (SECCOMP_MODE_STRICT). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/audit.h>
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
#include <sys/wait.h>
#include <unistd.h>

static void *volatile keeper;
static int damaged;

static void say(const char *word, int number) {
    char line[64] = "";
    size_t n = strlen(word);
    memcpy(line, word, n);
    line[n++] = ' ';
    for (int digit = 1000; digit; digit /= 10) line[n++] = (char)('0' + number / digit % 10);
    line[n++] = '\n';
    if (syscall(SYS_write, 1, line, n) < 0) syscall(SYS_exit_group, 98);
}

static void refused(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    say("refused", info->si_syscall);
    syscall(SYS_exit_group, 99);
}

static void confine(const char *entry, int allowed, char **numbers) {
    if (!strcmp(entry, "strict")) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) exit(97);
        return;
    }
    int kill = allowed > 0 && !strcmp(numbers[allowed - 1], "kill");
    struct sock_filter code[200], *at = code;
    *at++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    int always[] = {SYS_write, SYS_exit_group, SYS_rt_sigreturn};
    for (int i = 0; i < 3 + allowed - kill; i++) {
        unsigned number = i < 3 ? (unsigned)always[i] : (unsigned)atoi(numbers[i - 3]);
        *at++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    *at++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, kill ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_TRAP);
    struct sock_fprog program = {.len = (unsigned short)(at - code), .filter = code};
    struct sigaction action = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &action, NULL);
    unsigned flags = !strcmp(entry, "tsync") ? SECCOMP_FILTER_FLAG_TSYNC : 0;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) exit(97);
    if (!strcmp(entry, "filter") ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
                                 : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program))
        exit(97);
}

__attribute__((noinline)) static char *inner(size_t n) {
    keeper = malloc(n);
    return keeper;
}

__attribute__((noinline)) static char *helper(size_t n) {
    char *block = inner(n);
    memset(block, 5, n);
    return block;
}

/* A rule names inner called by outer, so what helper allocates matches half of the rule. */
__attribute__((noinline)) static char *outer(size_t n) {
    char *block = inner(n);
    memset(block, 6, n);
    return block;
}

static void allocate(void) {
    for (size_t n = 1; n < 3000000; n = n * 3 + 7) {
        char *block = helper(n), *more = calloc(3, n);
        block = realloc(block, n + 5000);
        damaged += block[0] != 5 || block[n - 1] != 5 || more[3 * n - 1] != 0;
        free(block), free(more);
    }
}

static void *worker(void *argument) {
    allocate();
    return argument;
}

static void on_signal(int signal) {
    (void)signal;
    allocate();
}

enum { SIZES = 6, BLOCKS = 3 };

/* Blocks of sizes that were freed before, so that glibc has them on its heap, large ones too. */
static char *blocks[SIZES][BLOCKS];

static void prepare(void) {
    static const size_t sizes[SIZES] = {3 << 20, 100000, 60000, 200000, 5000, 100};
    for (int i = 0; i < SIZES; i++) free(outer(sizes[i]));
    for (int i = 0; i < SIZES; i++)
        for (int j = 0; j < (sizes[i] < 100000 ? BLOCKS : 1); j++) blocks[i][j] = outer(sizes[i]);
}

/* Large arrays, which glibc maps and makes smaller where they are. */
static char *large[BLOCKS];

static void shrink(void) {
    for (int i = 0; i < BLOCKS; i++) {
        for (size_t n = 20 << 20; n > 1 << 20; n = n * 2 / 3) {
            large[i] = realloc(large[i], n);
            damaged += large[i][0] != 6 || large[i][n - 1] != 6;
        }
        free(large[i]);
    }
}

int main(int argc, char **argv) {
    if (argc < 4) return 1;
    const char *mode = argv[1];
    int releases = !strcmp(mode, "free") || !strcmp(mode, "unmap");
    int shrinks = !strcmp(mode, "shrink");
    if (releases) prepare();
    char *before = outer(200000), *small = outer(500), *last = NULL;
    if (!strcmp(mode, "unmap")) last = outer(9 << 20);
    for (int i = 0; i < BLOCKS && shrinks; i++) large[i] = outer(40 << 20);
    if (shrinks) free(outer(500)); /* a phase may begin here, so that they are to be moved */
    signal(SIGUSR1, on_signal);
    confine(argv[2], argc - 4, argv + 4);
    if (!strcmp(argv[2], "strict")) {
        for (size_t n = 1; n < 2000; n += 60) free(helper(n));
        damaged += before[199999] != 6 || small[499] != 6;
        say("damaged", damaged);
        syscall(SYS_exit, 3);
    }
    if (!releases && !shrinks) allocate();
    if (shrinks) shrink();
    if (releases) {
        for (int i = 0; i < SIZES * BLOCKS; i++) free(blocks[i / BLOCKS][i % BLOCKS]);
        free(last);
    } else if (!strcmp(mode, "thread")) {
        pthread_t team[3];
        for (int t = 0; t < 3; t++)
            if (pthread_create(&team[t], NULL, worker, NULL)) damaged++;
        for (int t = 0; t < 3; t++) pthread_join(team[t], NULL);
    } else if (!strcmp(mode, "dlopen")) {
        for (int i = 0; i < 3; i++) {
            void *library = dlopen(argv[3], RTLD_NOW);
            char *(*make)(size_t) = library ? (char *(*)(size_t))dlsym(library, "plugin_make") : NULL;
            if (make) free(make(20000));
            damaged += !make || dlclose(library);
        }
    } else if (!strcmp(mode, "fork")) {
        int status = 1;
        pid_t child = fork();
        if (child == 0) allocate(), _exit(7);
        damaged += waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7;
    } else if (!strcmp(mode, "signal")) {
        raise(SIGUSR1);
    }
    damaged += before[199999] != 6 || small[499] != 6;
    free(before), free(small);
    say("damaged", damaged);
    if (!strcmp(mode, "_exit")) _exit(3);
    if (!strcmp(mode, "_Exit")) _Exit(3);
    if (!strcmp(mode, "quick_exit")) quick_exit(3);
    return 3;
}
