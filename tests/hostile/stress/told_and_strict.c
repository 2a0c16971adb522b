/* Tells glibc what to keep in its heap, allocates, confines itself strictly and frees: glibc makes no system call then.
 * told_and_strict SIZE PARAMETER VALUE...: parameters of mallopt by name. */
#include <linux/seccomp.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline)) static char *made(size_t size) {
    char *block = malloc(size);
    __asm__ volatile("" : "+r"(block));
    return block;
}

static int parameter(const char *name) {
    if (!strcmp(name, "mmap_threshold")) return M_MMAP_THRESHOLD;
    if (!strcmp(name, "trim_threshold")) return M_TRIM_THRESHOLD;
    if (!strcmp(name, "top_pad")) return M_TOP_PAD;
    exit(2);
}

int main(int argc, char **argv) {
    for (int i = 2; i + 1 < argc; i += 2)
        if (!mallopt(parameter(argv[i]), atoi(argv[i + 1]))) return 2;
    size_t size = strtoul(argv[1], 0, 10);
    char *block = made(size);
    memset(block, 1, size);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    free(block);
    if (syscall(SYS_write, 1, "alive\n", 6) != 6) syscall(SYS_exit, 6);
    syscall(SYS_exit, 5);
}
