/* Arrays whose mapping the program changes before it frees them; what a later array of the size is like.
 *   attributes rights|keys|wiped|left-out|advice|shared|hole|moved|locked|locked-all
 * Each is what glibc maps anew for every such array, so a later one has nothing of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 4 };
static const size_t N = 1 << 20, PAGE = 4096;

__attribute__((noinline)) static char *array(size_t n) {
    char *p = aligned_alloc(PAGE, n);
    if (!p) exit(3);
    memset(p, 1, n);
    return p;
}

/* Those of the flags of the mapping at p that the program may have changed, and the rights before them. */
static void flags(const char *p) {
    static const char *const known[] = {"lo", "dc", "dd", "wf", "mg", "rr", "sr", "io", "um", "uw"};
    char line[512], rights[8] = "";
    FILE *f = fopen("/proc/self/smaps", "r");
    unsigned long start, end;
    int here = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3)
            here = start <= (unsigned long)p && (unsigned long)p < end;
        if (!here || strncmp(line, "VmFlags:", 8)) continue;
        printf("%s", rights);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strstr(line, known[i])) printf(" %s", known[i]);
        printf("\n");
        break;
    }
    if (f) fclose(f);
}

static void changed(char *p, const char *how, int round) {
    char *part = p + N / 4; /* of each second array only a part */
    if (round % 2 == 0) part = p;
    size_t len = part == p ? N : N / 8;
    int rc = 0;
    if (!strcmp(how, "rights")) rc = mprotect(part, len, PROT_READ);
    if (!strcmp(how, "keys")) rc = pkey_mprotect(part, len, PROT_NONE, -1);
    if (!strcmp(how, "wiped")) rc = madvise(part, len, MADV_WIPEONFORK);
    if (!strcmp(how, "left-out")) rc = madvise(part, len, MADV_DONTFORK);
    if (!strcmp(how, "advice"))
        rc = madvise(part, len, MADV_DONTDUMP) || posix_madvise(part, len, POSIX_MADV_SEQUENTIAL);
    if (!strcmp(how, "shared")) {
        int how_mapped = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
        rc = mmap(part, len, PROT_READ | PROT_WRITE, how_mapped, -1, 0) == MAP_FAILED;
    }
    if (!strcmp(how, "hole")) rc = munmap(part, len);
    if (!strcmp(how, "moved")) {
        void *q = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        q = mremap(part, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, q);
        rc = q == MAP_FAILED || munmap(q, len);
    }
    if (!strcmp(how, "locked")) rc = round % 2 ? mlock(part, len) : mlock2(part, len, 0);
    if (!strcmp(how, "locked-all")) rc = mlockall(MCL_CURRENT | MCL_ONFAULT);
    if (rc) printf("%s: %s\n", how, strerror(errno));
}

/* Root may lock without a limit. */
static void limit_locks(rlim_t bytes) {
    struct { unsigned version; int pid; } head = {0x20080522, 0};
    struct { unsigned effective, permitted, inheritable; } data[2];
    struct rlimit limit = {bytes, bytes};
    if (!syscall(SYS_capget, &head, data)) {
        data[0].effective &= ~(1u << 14);
        syscall(SYS_capset, &head, data);
    }
    setrlimit(RLIMIT_MEMLOCK, &limit);
}

static long sum(const char *p) {
    long found = 0;
    for (size_t i = 0; i < N; i++) found += p[i];
    return found;
}

/* Locked arrays of two sizes that together are over the limit. */
static void locks_are_given_back(void) {
    limit_locks(N + N / 2);
    for (int i = 0; i < 8; i++) {
        size_t n = i < 4 ? N : N - N / 4;
        char *p = array(n);
        if (mlock(p, n)) printf("mlock %d: %s\n", i, strerror(errno));
        free(p);
    }
}

int main(int argc, char **argv) {
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    if (argc < 2) return 2;
    if (!strcmp(argv[1], "locked")) locks_are_given_back();
    for (int i = 0; i < ROUNDS; i++) {
        char *p = array(N);
        changed(p, argv[1], i);
        free(p);
    }
    char *p = array(N);
    flags(p);
    memset(p, 7, N);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf("child %ld\n", sum(p));
        memset(p, 9, N);
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("status %d parent %ld\n", status, sum(p));
    return 0;
}
