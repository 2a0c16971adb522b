/* Allocates, then lets a sandbox refuse mbind as a container may at any time, and allocates again. The system calls are
   made directly: after prctl the library would leave the program alone, which has confined itself. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

__attribute__((noinline, noclone)) static void *make(size_t n) { void *p = malloc(n); __asm__ volatile(""); return p; }

int main(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof code[0], code};
    memset(make(100 << 10), 1, 100 << 10);
    if (syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 97;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter)) return 97;
    for (int i = 0; i < 2; i++) memset(make(200 << 10), 1, 200 << 10);
    puts("ok");
    return 0;
}
