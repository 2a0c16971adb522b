// Truth: main writes each word of its 256 pages 1000 times, while a signal handler writes one word of each of 32 pages as
// often as it says.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

enum { WORDS = 256 * 512, ROUNDS = 1000, PAGES = 32 };

static uint64_t *of_main, *of_handler;
static volatile sig_atomic_t calls;

static void handle(int number) {
    (void)number;
    for (int page = 0; page < PAGES; page++)
        of_handler[page * 512] = page;
    calls++;
}

int main(void) {
    of_main = aligned_alloc(4096, WORDS * 8);
    of_handler = aligned_alloc(4096, PAGES * 4096);
    signal(SIGPROF, handle);
    struct itimerval timer = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &timer, NULL);
    // By pages first, so that the hooks take another way at each access.
    for (int round = 0; round < ROUNDS; round++)
        for (int word = 0; word < 512; word++)
            for (int page = 0; page < WORDS / 512; page++)
                of_main[page * 512 + word] = round;
    timer.it_value.tv_usec = timer.it_interval.tv_usec = 0;
    setitimer(ITIMER_PROF, &timer, NULL);
    printf("%d\n", (int)calls);
    return 0;
}
