/* Prints where its own pages are: the independent witness of a placement, knowing nothing of numamma.
 *
 * A global and a heap array are touched by the main thread alone; then the kernel is asked for the node of every page
 * (move_pages(2) with nodes = NULL) and the answer is printed run by run:
 *     NAME first_page pages node
 * Page 0 is the first page that lies wholly inside the array. Node -1: not present.
 *
 * pagenodes [global_pages_to_touch]
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, GLOBAL = 9 << 20, HEAP = 24 << 20, DATA = 1 << 20 };
char big_global[GLOBAL];                              /* .bss */
uint64_t initialised[DATA / 8] = { 1, 2, 3 };         /* .data: file pages, private */

__attribute__((noinline)) static char *make_heap(void) { return malloc(HEAP); }

static void show(const char *name, const char *base, size_t size) {
    uintptr_t lo = ((uintptr_t)base + PAGE - 1) & -(uintptr_t)PAGE, hi = ((uintptr_t)base + size) & -(uintptr_t)PAGE;
    long n = (hi - lo) / PAGE, from = 0;
    void **pages = malloc(n * sizeof *pages);
    int *node = malloc(n * sizeof *node);
    for (long i = 0; i < n; i++) pages[i] = (void *)(lo + i * PAGE), node[i] = -1;
    if (syscall(SYS_move_pages, 0, n, pages, NULL, node, 0) != 0) perror("move_pages");
    for (long i = 1; i <= n; i++)
        if (i == n || (node[i] < 0 ? -1 : node[i]) != (node[from] < 0 ? -1 : node[from])) {
            printf("%s %ld %ld %d\n", name, from, i - from, node[from] < 0 ? -1 : node[from]);
            from = i;
        }
    free(pages), free(node);
}

int main(void) {
    char *heap = make_heap();
    memset(heap, 1, HEAP);
    memset(big_global, 2, GLOBAL);
    for (long i = 0; i < DATA / 8; i += PAGE / 8) initialised[i] += 1;
    show("big_global", big_global, GLOBAL);
    show("initialised", (char *)initialised, DATA);
    show("heap", heap, HEAP);
    free(heap);
    return 0;
}
