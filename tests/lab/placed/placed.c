// Prints the node of every page of its objects, so that a placement can be compared with its formula by
// other code than the library that made it.
// stdout: one line per object: name, address of the first byte, size, then the node of each whole page
// ("-" when it does not exist).   usage: placed [threads]
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096UL

char block_naive[41 * PAGE + 100];
char small_blocks[64 * PAGE];
char turns[80 * PAGE];
char big_turns[12UL << 20];
char big_blocks[32UL << 20];
char odd_blocks[20UL << 20];     // 640 KiB blocks where huge pages could be
char preset[33 * PAGE] = {1};    // .data, only read
void *pointers[9 * PAGE / 8] = {preset, turns, big_turns};
char ordered[16 * PAGE];

static void show(const char *name, char *object, size_t size) {
    uintptr_t first = ((uintptr_t)object + PAGE - 1) & ~(PAGE - 1), end = ((uintptr_t)object + size) & ~(PAGE - 1);
    printf("%s %p %zu", name, (void *)object, size);
    for (uintptr_t at = first; at < end; at += PAGE) {
        void *page = (void *)at;
        int status = -1;
        syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 0);
        if (status >= 0) printf(" %d", status); else printf(" -");
    }
    printf("\n");
}

__attribute__((noinline)) char *heap_blocks(size_t n) { char *p = malloc(n); __asm__ volatile(""); return p; }
__attribute__((noinline)) char *heap_chain(char *p, size_t n) { p = realloc(p, n); __asm__ volatile(""); return p; }
__attribute__((noinline)) char *heap_turns(size_t n) { char *p = calloc(1, n); __asm__ volatile(""); return p; }
__attribute__((noinline)) char *heap_local(size_t n) { char *p = malloc(n); __asm__ volatile(""); return p; }
__attribute__((noinline)) char *mapped(size_t n) {
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("");
    return p;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static long next_thread;

static void *work(void *arg) {
    long me = (long)arg;
    unsigned cpu, node;
    char *p = heap_local(5 * PAGE);
    memset(p, 1, 5 * PAGE);
    syscall(SYS_getcpu, &cpu, &node, NULL);
    pthread_mutex_lock(&lock);
    while (next_thread != me) pthread_cond_wait(&turn, &lock);
    char name[64];
    snprintf(name, sizeof name, "local%ld@%u", me, node);
    show(name, p, 5 * PAGE);
    next_thread++;
    pthread_cond_broadcast(&turn);
    pthread_mutex_unlock(&lock);
    free(p);
    return NULL;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 0;
    memset(block_naive, 1, sizeof block_naive);
    memset(small_blocks, 1, sizeof small_blocks);
    memset(turns, 1, sizeof turns);
    memset(big_turns, 1, sizeof big_turns);
    memset(big_blocks, 1, sizeof big_blocks);
    memset(odd_blocks, 1, sizeof odd_blocks);
    memset(ordered, 1, sizeof ordered);
    long sum = 0;
    for (size_t i = 0; i < sizeof preset; i += PAGE) sum += preset[i];
    if (sum != 1 || pointers[1] != turns) return 99;
    show("block_naive", block_naive, sizeof block_naive);
    show("small_blocks", small_blocks, sizeof small_blocks);
    show("turns", turns, sizeof turns);
    show("big_turns", big_turns, sizeof big_turns);
    show("big_blocks", big_blocks, sizeof big_blocks);
    show("odd_blocks", odd_blocks, sizeof odd_blocks);
    show("preset", preset, sizeof preset);
    show("pointers", (char *)pointers, sizeof pointers);
    show("ordered", ordered, sizeof ordered);
    char *p = heap_blocks(10UL << 20);
    memset(p, 1, 10UL << 20);
    show("heap_blocks", p, 10UL << 20);
    p = realloc(p, 18UL << 20);
    memset(p, 2, 18UL << 20);
    show("heap_grown", p, 18UL << 20);
    char *chain = NULL; /* as push_back in C: the page at the end is written, and half as much again is asked for */
    size_t room = 0;
    for (size_t page = 0; page < 4000; page++) {
        if (page == room) chain = heap_chain(chain, (room += room / 2 + 2) * PAGE);
        chain[page * PAGE] = (char)page;
    }
    for (size_t page = 0; page < 4000; page++) if (chain[page * PAGE] != (char)page) return 97;
    show("heap_chain", chain, 4000 * PAGE);
    char *q = heap_turns(100 * PAGE);
    memset(q, 1, 100 * PAGE);
    show("heap_turns", q, 100 * PAGE);
    char *m = mapped(64 * PAGE);
    memset(m, 1, 64 * PAGE);
    show("mapped", m, 64 * PAGE);
    m = mremap(m, 64 * PAGE, 128 * PAGE, MREMAP_MAYMOVE);
    if (m == MAP_FAILED || m[0] != 1 || m[64 * PAGE - 1] != 1) return 98;
    memset(m, 1, 128 * PAGE);
    show("mapped_grown", m, 128 * PAGE);
    pthread_t id[64];
    for (long t = 0; t < threads && t < 64; t++) pthread_create(&id[t], NULL, work, (void *)t);
    for (long t = 0; t < threads && t < 64; t++) pthread_join(id[t], NULL);
    return 0;
}
