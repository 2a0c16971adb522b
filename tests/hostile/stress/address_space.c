/* Limits on address space and locked memory.   address_space size|limit|lock MIB
 *   size   writes VmSize in KiB to standard error
 *   limit  allows itself MIB of address space after a first allocation, then takes three quarters of it in pieces
 *   lock   without privileges: allows itself MIB of locked memory, or what it may, and locks all it has and will have;
 *          writes the KiB that it may lock to standard error */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "status.h"

__attribute__((noinline)) static void *piece(size_t n) {
    char *p = malloc(n);
    if (p) memset(p, 1, n < 4096 ? n : 4096);
    return p;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "size";
    size_t limit = argc > 2 ? strtoul(argv[2], NULL, 0) << 20 : 0;
    struct rlimit wanted = {limit, limit};
    void *first = piece(100);
    if (!strcmp(how, "size")) fprintf(stderr, "%ld\n", status("VmSize:"));
    if (!strcmp(how, "limit")) {
        int refused = setrlimit(RLIMIT_AS, &wanted), pieces = 0;
        for (size_t i = 0; i < limit / 4; i += 1 << 20) refused += !piece(1 << 20), pieces++;
        for (size_t i = 0; i < limit / 4; i += 1000) refused += !piece(1000), pieces++;
        for (size_t i = 0; i < limit / 4; i += 4 << 20, pieces++)
            refused += mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
        printf("%d pieces, %d refused\n", pieces, refused);
    }
    if (!strcmp(how, "lock")) {
        struct rlimit given;
        getrlimit(RLIMIT_MEMLOCK, &given);
        if (setrlimit(RLIMIT_MEMLOCK, &wanted)) wanted.rlim_cur = wanted.rlim_max = given.rlim_max;
        int set = setrlimit(RLIMIT_MEMLOCK, &wanted), changed = getuid() ? 0 : setresuid(65534, 65534, 65534);
        fprintf(stderr, "%ld\n", (long)(wanted.rlim_cur >> 10));
        int locked = mlockall(MCL_CURRENT | MCL_FUTURE);
        // Under policies by blocks the large one has a mapping of its own; the library of a test build leaves little room.
        void *small = piece(100), *large = piece(16000);
        printf("changed %d set %d locked %d small %d large %d\n", changed, set, locked, small != NULL, large != NULL);
    }
    free(first);
    return 0;
}
