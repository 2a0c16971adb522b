/* 300,000 blocks that one of two threads frees, in turns, by the first argument:
 *   other    the thread that did not allocate them
 *   own      the thread that allocated them, after the other one has read them
 *   resized  the other thread makes larger blocks of them with realloc, and frees these
 *   large    as other, with blocks so large that the allocator maps each by itself, and fewer of them */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 1000, ROUNDS = 300, LARGE = 256 << 10 };
static const char *mode;
static size_t bytes = 64;
static unsigned rounds = ROUNDS, batch = BATCH;
static unsigned char *blocks[BATCH];
static pthread_barrier_t turn;
static uint64_t sum;

static int is(const char *name) { return !strcmp(mode, name); }

static void make(void) {
    for (unsigned i = 0; i < batch; i++) {
        blocks[i] = malloc(bytes); /* the call site */
        if (!blocks[i]) exit(3);
        memset(blocks[i], (int)i, bytes);
    }
}

static void use(void) {
    for (unsigned i = 0; i < batch; i++) {
        if (is("resized")) blocks[i] = realloc(blocks[i], 4 * bytes);
        for (unsigned n = 0; n < 2048; n++) sum += ((volatile unsigned char *)blocks[i])[n % 64];
    }
}

static void drop(void) {
    for (unsigned i = 0; i < batch; i++) free(blocks[i]);
}

static void *other(void *argument) {
    for (unsigned i = 0; i < rounds; i++) {
        pthread_barrier_wait(&turn);
        use();
        if (is("other") || is("large") || is("resized")) drop();
        pthread_barrier_wait(&turn);
    }
    return argument;
}

int main(int argc, char **argv) {
    mode = argc > 1 ? argv[1] : "other";
    if (is("large")) bytes = LARGE, rounds = 100, batch = 10;
    pthread_t thread;
    pthread_barrier_init(&turn, 0, 2);
    pthread_create(&thread, 0, other, 0);
    for (unsigned i = 0; i < rounds; i++) {
        make();
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
        if (is("own")) drop();
    }
    pthread_join(thread, 0);
    printf("%lu\n", (unsigned long)sum);
    return 0;
}
