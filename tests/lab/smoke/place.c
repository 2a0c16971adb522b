// 64 pages, 16 bound to each of four nodes, then asked back from the kernel; then a sample with user registers.
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int answer(void);
int main(void) {
    enum { PAGE = 4096, N = 64 };
    char *p = mmap(0, N * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 4; i++) {
        unsigned long mask = 1ul << i;
        if (syscall(SYS_mbind, p + i * 16 * PAGE, 16 * PAGE, 2, &mask, 65, 0)) { perror("mbind"); return 1; }
    }
    memset(p, 1, N * PAGE);
    void *page[N]; int node[N];
    for (int i = 0; i < N; i++) page[i] = p + i * PAGE;
    if (syscall(SYS_move_pages, 0, N, page, NULL, node, 0)) { perror("move_pages"); return 1; }
    for (int i = 0; i < N; i++) printf("%d", node[i]);
    struct perf_event_attr a = { .type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_period = 1000000, .sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_REGS_USER, .sample_regs_user = 0xff0fff,
        .exclude_kernel = 1 };
    int fd = syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
    if (fd < 0) { perror("perf_event_open"); return 1; }
    struct perf_event_mmap_page *ring = mmap(0, 9 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (volatile long i = 0; i < 50000000; i++);
    printf(" samples %d answer %d uid %d\n", ring->data_head > 0, answer(), getuid());
    return 0;
}
