// Descriptors of a program are its own. One or two threads allocate arrays and small objects, or pages move between phases,
// while the main thread
//   opens     closes standard input and opens a file, which must get its number,
//   replaces  closes standard input and puts a pipe in its place, from which it must read what was written,
//   closes    closes all descriptors from 3 on again and again,
//   alone     does as `opens`, for a second and without other threads, with arrays that were allocated before.
// No other thread of the program opens a file. To standard output: how often that went wrong.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile int stop;

__attribute__((noinline)) static char *site(size_t size) { return malloc(size); }
__attribute__((noinline)) static char *resize(char *block, size_t size) { return realloc(block, size); }

static void *allocate(void *arg) {
    char *kept[64] = {0};
    unsigned seed = 1 + (unsigned)(size_t)arg;
    while (!stop) {
        int number = rand_r(&seed) % 64;
        size_t size = rand_r(&seed) % (number % 2 ? 3000 : 3000000);
        free(kept[number]);
        kept[number] = site(size);
        if (number % 3) kept[number] = resize(kept[number], size * 3 / 2 + 1);
        if (!kept[number]) abort();
        memset(kept[number], 1, size / 10);
    }
    return NULL;
}

// glibc itself opens /proc/sys/vm/overcommit_memory when the heap of a thread shrinks for the first time.
static void *shrink(void *arg) {
    char *blocks[64];
    for (int i = 0; i < 64; i++) {
        if (!(blocks[i] = malloc(100000))) abort();
        memset(blocks[i], 1, 100000);
    }
    for (int i = 63; i >= 0; i--) free(blocks[i]);
    return arg;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int is_alone = !strcmp(how, "alone"), ends[2], wrong = 0;
    if (pipe(ends)) return 2;
    for (int i = 0; i < 100; i++) memset(resize(site(1000000), 2000000), 1, 2000000);
    pthread_t thread;
    if (!is_alone && (pthread_create(&thread, NULL, shrink, NULL) || pthread_join(thread, NULL))) return 2;
    for (size_t i = 0; !is_alone && i < 2; i++)
        if (pthread_create(&thread, NULL, allocate, (void *)i)) return 2;
    for (double begin = now(); now() - begin < 1;) {
        if (!strcmp(how, "closes")) {
            for (int fd = 3; fd < 1024; fd++) close(fd);
            continue;
        }
        close(0);
        if (strcmp(how, "replaces")) {
            int fd = open("/dev/null", O_RDONLY);
            wrong += fd != 0;
            if (fd > 0) close(fd);
            continue;
        }
        char in = 'x', out = 0;
        usleep(1);
        dup2(ends[0], 0);
        if (write(ends[1], &in, 1) != 1) wrong++;
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        wrong += read(0, &out, 1) != 1 || out != in;
        while (read(ends[0], &out, 1) == 1) continue;
    }
    stop = 1;
    printf("wrong %d\n", wrong);
    fflush(stdout);
    _exit(0);
}
