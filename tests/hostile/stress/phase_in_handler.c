/* Begins phases in a signal handler that interrupts malloc and free. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

extern void numamma_phase(const char *name) __attribute__((weak));

static volatile sig_atomic_t ticks;

static void tick(int signal) {
    (void)signal;
    ticks++;
    if (numamma_phase)
        numamma_phase(ticks & 1 ? "odd" : "even");
}

__attribute__((noinline)) static char *grab(size_t bytes) {
    char *array = malloc(bytes);
    memset(array, 9, bytes);
    return array;
}

int main(void) {
    char *array = grab(1 << 20);
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    char *kept[256] = {0};
    unsigned random = 1;
    for (time_t end = time(NULL) + 3; time(NULL) < end;)
        for (int i = 0; i < 1000; i++) {
            random = random * 1103515245 + 12345;
            unsigned at = (random >> 8) % 256;
            free(kept[at]);
            kept[at] = malloc(2000 + (random >> 16) % 30000);
            kept[at][0] = 1;
        }
    setitimer(ITIMER_REAL, &never, NULL);
    int damaged = 0;
    for (int i = 0; i < 1 << 20; i++)
        damaged |= array[i] != 9;
    printf("done %d\n", damaged);
    return 42;
}
