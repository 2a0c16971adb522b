/* under bind|interleave|preferred MASK COMMAND...: runs COMMAND under the memory policy, as numactl does. */
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    unsigned long mask = strtoul(argv[2], NULL, 16);
    int mode = !strcmp(argv[1], "bind") ? MPOL_BIND : !strcmp(argv[1], "preferred") ? MPOL_PREFERRED : MPOL_INTERLEAVE;
    if (syscall(SYS_set_mempolicy, mode, &mask, sizeof mask * 8 + 1)) return perror("set_mempolicy"), 2;
    execvp(argv[3], argv + 3);
    return perror(argv[3]), 2;
}
