/* Limits that fall while the program runs.   limits memory|files|mbind|mappings */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int usable(void) {
    for (size_t n = 8; n < 500000; n = n * 3 / 2) {
        char *p = calloc(1, n);
        if (!p || p[n - 1]) return 0;
        memset(p, 1, n);
        p = realloc(p, n * 2);
        if (!p || p[n - 1] != 1) return 0;
        free(p);
    }
    return 1;
}

/* Little address space left: everything must fail as C says, and work again when some is given back. */
static int memory(void) {
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%zu", &pages) != 1 || fclose(f)) return 1;
    struct rlimit limit = {pages * 4096 + (64 << 20), RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    char *held[200];
    int n = 0;
    for (; n < 200 && (held[n] = malloc(1 << 20)); n++) memset(held[n], n, 1 << 20);
    int refused = n < 200 && errno == ENOMEM;
    char *grown = realloc(held[0], 512 << 20);
    int kept = !grown && held[0][99] == 0 && !calloc(1 << 10, 1 << 20);
    void *aligned = NULL;
    int code = posix_memalign(&aligned, 4096, 512 << 20);
    while (n) free(held[--n]);
    printf("refused %d kept %d code %d usable %d\n", refused, kept, code == ENOMEM, usable());
    return 0;
}

static void *in_thread(void *arg) { return usable() ? arg : NULL; }

/* No file can be opened any more. */
static int files(void) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_NOFILE, &none);
    pthread_t t;
    void *fine = NULL;
    pthread_create(&t, NULL, in_thread, &none);
    pthread_join(t, &fine);
    void *library = dlopen("libm.so.6", RTLD_NOW);
    printf("usable %d thread %d library %d\n", usable(), fine != NULL, library != NULL);
    return 0;
}

/* A sandbox that begins in the middle of the run. Where stderr is closed the program's own file has its number: nobody
 * may write there. */
static int refused(void) {
    int own = open("own", O_CREAT | O_TRUNC | O_RDWR, 0600);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_move_pages, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof code[0], code};
    char *before = memset(malloc(50000), 4, 50000);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 1;
    before = realloc(before, 900000);
    printf("kept %d usable %d", before[49999] == 4, usable());
    printf(" own file of %ld bytes\n", (long)lseek(own, 0, SEEK_END));
    return 0;
}

/* Nearly all mappings that a process may have are taken by the program itself. */
static int mappings(void) {
    size_t most = 65530, taken = 0;
    FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
    if (!f || fscanf(f, "%zu", &most) != 1 || fclose(f)) return 1;
    if (most > 300000) most = 300000;
    char *area = mmap(NULL, most * 2 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) return 2;
    while (taken + 400 < most / 2 && !mprotect(area + taken * 8192, 4096, PROT_READ)) taken++;
    while (!mprotect(area + taken * 8192, 4096, PROT_READ)) taken++;
    for (int i = 0; i < 150; i++) mprotect(area + --taken * 8192, 4096, PROT_NONE);
    printf("usable %d\n", usable());
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "memory")) return memory();
    if (!strcmp(what, "files")) return files();
    if (!strcmp(what, "mbind")) return refused();
    if (!strcmp(what, "mappings")) return mappings();
    return 3;
}
