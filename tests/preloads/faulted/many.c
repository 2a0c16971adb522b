/* Many threads that wait for pages at a time, while some of them give pages back to the kernel. */
#include "window.h"

enum { THREADS = 400, PAGES = 64, ROUNDS = 60 };

static unsigned char *all;
static size_t failures[THREADS];

static void *work(void *which) {
    size_t id = (size_t)which;
    unsigned char *mine = all + id * PAGES * PAGE;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (size_t page = 0; page < PAGES; page++) {
            unsigned expected = id % 8 == 0 && page < PAGES / 2 ? 0 : round % 256;
            failures[id] += mine[page * PAGE] != expected;
            mine[page * PAGE]++;
        }
        if (id % 8 == 0)
            madvise(mine, PAGES / 2 * PAGE, MADV_DONTNEED);
    }
    return NULL;
}

int main(void) {
    size_t bytes = (size_t)THREADS * PAGES * PAGE, sum = 0;
    all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        abort();
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &small, work, (void *)i) != 0)
            abort();
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += failures[i];
    }
    printf("failures %zu\n", sum);
    return 0;
}
