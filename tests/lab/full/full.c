/* full N: fills node 1 and says so (the neighbour). When the file `go` is there, it gives N MiB back, makes the file
 * `given` and waits.
 * full: with $NEIGHBOUR it asks for that first, when what started it has its memory already. Allocates and writes
 * objects of 4 to 24 MiB, prints their sum, and the line of each in numa_maps. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, MIB = 1 << 20, NODE = 1, MPOL_PREFERRED = 1, SMALL = 8 * MIB / 1024 };

char in_bss[16 * MIB] __attribute__((aligned(4096)));

#define SITE __attribute__((noinline, noclone)) static char *
SITE by_malloc(size_t n) { char *p = malloc(n); __asm__ volatile(""); return p; }
SITE by_small(size_t n) { char *p = malloc(n); __asm__ volatile("nop"); return p; }
SITE in_turn(size_t n) { char *p = malloc(n); __asm__ volatile("nop; nop"); return p; }
SITE on_two(size_t n) { char *p = malloc(n); __asm__ volatile("nop; nop; nop"); return p; }
SITE by_mmap(size_t n) {
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("");
    return p;
}

static int node_of(char *page) {
    void *at = page;
    int status = -1;
    syscall(SYS_move_pages, 0, 1L, &at, NULL, &status, 0);
    return status;
}

static int neighbour(int rest) {
    unsigned long mask = 1 << NODE;
    char *p = NULL;
    int chunks = 0;
    do {
        p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        syscall(SYS_mbind, p, (long)MIB, MPOL_PREFERRED, &mask, 64L, 0);
        for (int at = 0; at < MIB; at += PAGE) p[at] = 1;
        chunks++;
    } while (node_of(p + MIB - PAGE) == NODE && chunks < 1024);
    /* The newest chunks are next to each other: an anonymous mapping goes below the one before. */
    printf("filled %d MiB\n", chunks);
    fflush(stdout);
    while (access("go", F_OK)) usleep(10000);
    munmap(p, (size_t)rest * MIB);
    close(creat("given", 0600));
    for (;;) pause();
}

/* The pages of all lines of numa_maps that begin in [p, p + n): several for an object in blocks. */
static void show(const char *name, char *p, size_t n) {
    char line[1024], policy[64] = "?";
    unsigned long start, pages[3] = {0};
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    while (fgets(line, sizeof line, maps)) {
        char word[64];
        if (sscanf(line, "%lx %63[^: ]", &start, word) != 2) continue;
        if (start < (unsigned long)p || start >= (unsigned long)p + n) continue;
        strcpy(policy, word);
        for (int node = 0; node < 3; node++) {
            char key[8];
            sprintf(key, " N%d=", node);
            char *at = strstr(line, key), *huge = strstr(line, "kernelpagesize_kB=2048");
            if (at) pages[node] += strtoul(at + 4, NULL, 10) * (huge ? 512 : 1);
        }
    }
    fclose(maps);
    printf("maps %s %s N0=%lu N1=%lu N2=%lu\n", name, policy, pages[0], pages[1], pages[2]);
}

int main(int argc, char **argv) {
    if (argc > 1) return neighbour(atoi(argv[1]));
    if (getenv("NEIGHBOUR")) {
        close(creat("go", 0600));
        while (access("given", F_OK)) usleep(10000);
    }
    size_t n = 24 * MIB, few = 16 * MIB, two = 4 * MIB;
    char *a = by_malloc(n), *b = by_mmap(few), *c = in_turn(two), *d = on_two(two), *small[SMALL];
    memset(a, 1, n);
    for (int i = 0; i < SMALL; i++) memset(small[i] = by_small(1024), i, 1024);
    memset(b, 2, few), memset(c, 3, two), memset(d, 4, two), memset(in_bss, 5, sizeof in_bss);
    unsigned long sum = 0;
    for (int i = 0; i < SMALL; i++) sum += (unsigned char)small[i][i % 1024];
    for (size_t i = 0; i < n; i++) sum += a[i];
    for (size_t i = 0; i < few; i++) sum += b[i] + in_bss[i];
    for (size_t i = 0; i < two; i++) sum += c[i] + d[i];
    printf("sum %lu\n", sum);
    show("by_malloc", a, n), show("by_mmap", b, few), show("in_turn", c, two), show("on_two", d, two);
    show("in_bss", in_bss, sizeof in_bss);
    return 0;
}
