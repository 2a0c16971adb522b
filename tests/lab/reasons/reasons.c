/* Takes pages off their plan in every way there is, so that the report can tell them apart. Runs as root in the lab, on four
 * nodes, with huge pages off at first. Objects of 64 pages unless said otherwise. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64, SIZE = PAGES * PAGE, HUGE = 2 << 20, CHUNK = 2 << 20, MPOL_PREFERRED = 1 };

char overlaid[SIZE] __attribute__((aligned(4096)));

#define SITE __attribute__((noinline, noclone)) static char *
SITE moved(size_t n) { char *p = malloc(n); __asm__ volatile(""); return p; }
SITE shared(size_t n) { char *p = malloc(n); __asm__ volatile("nop"); return p; }
SITE collapsed(size_t n) { char *p = malloc(n); __asm__ volatile("nop; nop"); return p; }
SITE swapped(size_t n) { char *p = malloc(n); __asm__ volatile("nop; nop; nop"); return p; }
SITE full(size_t n) { char *p = malloc(n); __asm__ volatile("nop; nop; nop; nop"); return p; }

static void say(const char *path, const char *text) {
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) perror(path);
    close(fd);
}

static int node_of(char *page) {
    void *at = page;
    int status = -1;
    syscall(SYS_move_pages, 0, 1L, &at, NULL, &status, 0);
    return status;
}

static void move(char *page, int count, int node) {
    for (int i = 0; i < count; i++) {
        void *at = page + i * PAGE;
        int status;
        syscall(SYS_move_pages, 0, 1L, &at, &node, &status, 2);
    }
}

/* khugepaged makes one page of the 512 of an interleaved object. */
static void collapse(char *p) {
    say("/sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "1");
    say("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan", "100000");
    say("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "10");
    say("/sys/kernel/mm/transparent_hugepage/enabled", "always");
    madvise(p, HUGE, MADV_HUGEPAGE);
    for (int tries = 0; tries < 1200; tries++) {
        int same = node_of(p) >= 0; /* none while it is being collapsed */
        for (int i = 1; i < 8; i++) same &= node_of(p) == node_of(p + i * PAGE);
        if (same) break;
        usleep(50000);
    }
    say("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "3600000");
    say("/sys/kernel/mm/transparent_hugepage/enabled", "never");
    /* On plan by accident, where interleaving huge pages would have put it: then to the next node. */
    int now = node_of(p), by_turns = ((unsigned long)p >> 21) % 4;
    if (now == by_turns) move(p, 1, (now + 1) % 4);
}

/* Fills node 3 until the kernel takes pages elsewhere. */
static void fill(void) {
    unsigned long mask = 1 << 3;
    for (int i = 0; i < 4096; i++) {
        char *p = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        syscall(SYS_mbind, p, (long)CHUNK, MPOL_PREFERRED, &mask, 64L, 0);
        for (int at = 0; at < CHUNK; at += PAGE) p[at] = 1;
        if (node_of(p + CHUNK - PAGE) != 3) return;
    }
}

int main(void) {
    /* What exists before the fork is shared as long as the child lives, which ends with this process. */
    char *b = shared(SIZE);
    memset(b, 1, SIZE);
    move(b, 20, 2);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    char *a = moved(SIZE), *c = collapsed(HUGE), *d = swapped(SIZE), *e = full(SIZE);
    memset(a, 1, SIZE), memset(c, 1, HUGE), memset(d, 1, SIZE), memset(overlaid, 1, SIZE);
    move(a, 10, 2);
    collapse(c);
    madvise(d, 8 * PAGE, 21 /* MADV_PAGEOUT */);
    /* Three pages of a file over the variable. */
    int fd = open("overlay", O_RDWR | O_CREAT, 0600);
    if (write(fd, a, 3 * PAGE) != 3 * PAGE) return perror("overlay"), 1;
    char *over = mmap(overlaid, 3 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    volatile char sum = 0;
    int file = 0, away = 0;
    for (int i = 0; i < 3; i++) sum += over[i * PAGE], file += node_of(over + i * PAGE) != 1;
    fill();
    memset(e, 1, SIZE);
    /* All pages that it has a byte of: it need not begin with its first page. */
    for (char *page = e - (unsigned long)e % PAGE; page < e + SIZE; page += PAGE) away += node_of(page) != 3;
    printf("{\"file\": %d, \"full\": %d}\n", file, away);
    return 0;
}
