/* Processes that start processes.
 *
 * family fork   the parent and a forked child (no exec) each fill and read their own half of a block
 * family exec   the program executes itself again as `family work`
 * family many   500 threads, each of which does very little, four at a time
 * family deep   a child that forks a grandchild
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)

double table[4 * MIB / sizeof(double)];

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline)) static double work(volatile double *a, size_t n, double seconds) {
    double sum = 0, end = cpu() + seconds;
    while (cpu() < end)
        for (size_t i = 0; i < n; i++) {
            a[i] += 1;
            sum += a[i];
        }
    return sum;
}

__attribute__((noinline)) static double *block_of(size_t bytes) {
    double *block = malloc(bytes);
    __asm__ volatile("" ::: "memory"); /* no tail call: the frame must be on the stack */
    return block;
}

static void *little(void *arg) {
    char name[16];
    snprintf(name, sizeof name, "little-%ld", (long)arg);
    pthread_setname_np(pthread_self(), name);
    free(malloc(100 + (long)arg));
    table[(long)arg * 512] += 1;
    return NULL;
}

static void many(void) {
    for (long i = 0; i < 500; i += 4) {
        pthread_t t[4];
        for (int k = 0; k < 4; k++) pthread_create(&t[k], NULL, little, (void *)(i + k));
        for (int k = 0; k < 4; k++) pthread_join(t[k], NULL);
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "work";
    size_t bytes = 6 * MIB, n = bytes / sizeof(double);
    if (!strcmp(what, "exec")) {
        work(table, 1000, 0.05);
        execl(argv[0], argv[0], "work", (char *)NULL);
        return 99;
    }
    if (!strcmp(what, "many")) {
        many();
        return 0;
    }
    double *block = block_of(bytes);
    memset(block, 0, bytes);
    if (!strcmp(what, "fork") || !strcmp(what, "deep")) {
        if (fork() == 0) {
            if (!strcmp(what, "deep") && fork() == 0) {
                work(block, n, 0.2);
                _exit(0);
            }
            work(block, n, 0.3);
            wait(NULL);
            _exit(0);
        }
        work(table, sizeof table / sizeof *table, 0.3);
        wait(NULL);
        return 7;
    }
    printf("%d\n", work(block, n, 0.4) + work(table, sizeof table / sizeof *table, 0.2) > 0);
    return 0;
}
