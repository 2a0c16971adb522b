/* team COUNT: an OpenMP team of COUNT threads, and objects in COUNT slices that a policy puts where these are.
 *
 * stdout: a line for each thread with the nodes of the CPUs that it may use, by the kernel's word, then for the global
 * `grid` and the heap object `by_malloc` (allocated while all threads are alive) the node of each slice.
 */
#define _GNU_SOURCE
#include <glob.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIZE = 4 << 20, PAGE = 4096 };

__attribute__((aligned(4096))) char grid[SIZE];

__attribute__((noinline, noclone)) static char *by_malloc(size_t n) {
    char *p = malloc(n);
    __asm__ volatile("");
    return p;
}

static int node_of_cpu(int cpu) {
    char pattern[64];
    int node = -1;
    glob_t found;
    sprintf(pattern, "/sys/devices/system/cpu/cpu%d/node[0-9]*", cpu);
    if (glob(pattern, 0, NULL, &found) == 0) node = atoi(strstr(found.gl_pathv[0], "/node") + 5), globfree(&found);
    return node;
}

static void show_thread(void) {
    cpu_set_t set;
    int before = -1;
    sched_getaffinity(0, sizeof set, &set);
    printf("thread");
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &set)) continue;
        int node = node_of_cpu(cpu);
        if (node != before) printf(" %d", node);
        before = node;
    }
    printf("\n");
}

static void show(const char *name, char *p, int count) {
    size_t slice = SIZE / count;
    memset(p, 1, SIZE);
    printf("%s", name);
    for (int s = 0; s < count; s++) {
        int first = -1, node = -1, mixed = 0;
        for (size_t i = 0; i < slice; i += PAGE) {
            void *page = p + s * slice + i;
            syscall(SYS_move_pages, 0, 1L, &page, NULL, &node, 0);
            if (i == 0) first = node;
            mixed |= node != first;
        }
        if (mixed) printf(" mixed");
        else printf(" %d", first);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1;
    char *heap = NULL;
    #pragma omp parallel num_threads(count)
    {
        #pragma omp for ordered schedule(static, 1)
        for (int t = 0; t < count; t++)
            #pragma omp ordered
            show_thread();
        #pragma omp single
        heap = by_malloc(SIZE);
    }
    show("grid", grid, count);
    show("by_malloc", heap, count);
    return 0;
}
