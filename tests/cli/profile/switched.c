/* Uses three arrays one after the other, so many ms of CPU time each, and wants samples of the second only. A child
 * process, if there is a second argument, uses a fourth meanwhile. Exits with 4. */
#include <numamma.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CELLS (1 << 16)

double first[CELLS], second[CELLS], third[CELLS], fourth[CELLS];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

__attribute__((noinline)) static void use(double *array, double ms) {
    for (double end = now() + ms; now() < end;)
        for (int i = 0; i < CELLS; i++) array[i] += 1;
}

int main(int argc, char **argv) {
    double ms = atof(argv[1]);
    use(first, ms);
    numamma_profile(1);
    if (argc > 2 && fork() == 0) {
        use(fourth, ms);
        _exit(0);
    }
    use(second, ms);
    numamma_profile(0);
    use(third, ms);
    while (wait(NULL) > 0) {}
    return 4;
}
