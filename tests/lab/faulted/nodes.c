/* Pages 0 to 63 of `used` are touched first on CPU 0, 64 to 127 on CPU 1. In a window of the fault sampler a thread on
 * CPU 1 writes pages 0 to 31, then one on CPU 0 reads pages 64 to 95. Prints the node of each page by the kernel's word
 * (move_pages(2)) once the window has ended. */
#include "../../preloads/faulted/window.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>

enum { PAGES = 128 };
static uint64_t used[PAGES * PAGE / 8] __attribute__((aligned(4096)));

static void on_cpu(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        abort();
}

static void fill(size_t from, size_t to) {
    for (size_t i = from * PAGE / 8; i < to * PAGE / 8; i++)
        used[i] = i / (PAGE / 8) + 1;
}

static void *writer(void *unused) {
    on_cpu(1);
    for (size_t page = 0; page < 32; page++)
        ((volatile uint64_t *)used)[page * PAGE / 8] = page + 1;
    return unused;
}

static void *reader(void *unused) {
    on_cpu(0);
    for (size_t page = 64; page < 96; page++)
        (void)((volatile uint64_t *)used)[page * PAGE / 8];
    return unused;
}

int main(void) {
    const struct timespec ms = {0, 1000000};
    void *pages[PAGES], *(*run[])(void *) = {writer, reader};
    int nodes[PAGES];
    pthread_t thread;
    on_cpu(0);
    fill(0, PAGES / 2);
    on_cpu(1);
    fill(PAGES / 2, PAGES);
    wait_for_window(used, PAGES);
    for (int i = 0; i < 2; i++) {
        pthread_create(&thread, NULL, run[i], NULL);
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < PAGES; i++)
        pages[i] = (char *)used + i * PAGE;
    /* Those that nobody used come back when the window ends. The next one may begin before the kernel is asked. */
    size_t bad, away;
    do {
        while (is_away(used + 32 * PAGE / 8, 32) || is_away(used + 96 * PAGE / 8, 32))
            nanosleep(&ms, NULL);
        bad = hurt(used, 0, PAGES);
        if (syscall(SYS_move_pages, 0, (long)PAGES, pages, NULL, nodes, 0) != 0)
            perror("move_pages");
        away = 0;
        for (int i = 0; i < PAGES; i++)
            away += nodes[i] == -ENOENT;
    } while (away > 0);
    printf("hurt %zu nodes", bad);
    for (int i = 0; i < PAGES; i++)
        printf(" %d", nodes[i]);
    printf("\n");
    return 0;
}
