/* In one window: a thread writes pages 0 to 31 of `used`, another one reads 32 to 63, a third one reads and then writes 64
   to 95; 96 to 127 are used by nobody. A thread reads into page 0 of `filled_by_kernel` from a pipe, and writes from page 1. */
#include "window.h"

uint64_t used[128 * PAGE / 8] __attribute__((aligned(4096)));
char by_kernel[2 * PAGE] __attribute__((aligned(4096)));
static volatile uint64_t sum;
static int tube[2];

static void *writer(void *unused) {
    for (size_t page = 0; page < 32; page++)
        used[page * PAGE / 8 + page] += 1;
    return unused;
}

static void *reader(void *unused) {
    uint64_t seen = 0;
    for (size_t page = 32; page < 64; page++)
        seen += used[page * PAGE / 8 + page];
    sum = seen;
    return unused;
}

static void *changer(void *unused) {
    volatile uint64_t *all = used;
    for (size_t page = 64; page < 96; page++) {
        uint64_t old = all[page * PAGE / 8];
        all[page * PAGE / 8 + 7] = old + 1;
    }
    return unused;
}

static void *caller(void *unused) {
    if (write(tube[1], by_kernel + PAGE, 100) != 100 || read(tube[0], by_kernel + 50, 100) != 100)
        abort();
    return unused;
}

int main(void) {
    if (pipe(tube) != 0)
        return 1;
    for (size_t i = 0; i < sizeof used / 8; i++)
        used[i] = i / (PAGE / 8) + 1;
    memset(by_kernel, 'k', sizeof by_kernel);
    memset(by_kernel, 'u', 50);
    void *(*run[])(void *) = {writer, reader, changer, caller};
    pthread_t thread;
    wait_for_window(used, 128);
    for (int i = 0; i < 4; i++) {
        pthread_create(&thread, NULL, run[i], NULL);
        pthread_join(thread, NULL);
    }
    printf("sum %lu\n", (unsigned long)sum);
    return 3; /* in the window */
}
