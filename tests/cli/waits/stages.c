/* Pipelines, by the first argument. Items go through bounded queues from stage to stage; a stage sweeps an array of its
 * thread as often as its work says.
 *   ferret  main loads, four stages of three threads with work 1 : 16 : 1 : 24, one thread writes
 *   dedup   one thread cuts, three stages of three threads with work 2 : 4 : 30, one thread puts in order
 *   even    four stages of three threads with equal work
 *   phases  three threads with little work, and when they have ended three threads with much
 *   sleepy  three threads with work, and three that sleep
 *   alone   main has ten times the work of each of three threads */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PER_STAGE = 3, STAGES = 4, DEEP = 8, WORDS = 1 << 13 };
struct queue {
    pthread_mutex_t lock;
    pthread_cond_t more, less;
    int items[DEEP], from, count, senders;
};
static struct queue queues[STAGES + 1];
static int work[STAGES];
static volatile int done;

static void sweep(int times) {
    static _Thread_local volatile uint64_t *own;
    if (!own && !(own = calloc(WORDS, 8))) exit(3);
    for (int s = 0; s < times; s++)
        for (int i = 0; i < WORDS; i++) own[i] += i;
}

static void put(struct queue *q, int item) {
    pthread_mutex_lock(&q->lock);
    while (q->count == DEEP) pthread_cond_wait(&q->less, &q->lock);
    q->items[(q->from + q->count++) % DEEP] = item;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
}

static void leave(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    q->senders--;
    pthread_cond_broadcast(&q->more);
    pthread_mutex_unlock(&q->lock);
}

/* False when nobody will put an item any more. */
static int get(struct queue *q, int *item) {
    pthread_mutex_lock(&q->lock);
    while (!q->count && q->senders) pthread_cond_wait(&q->more, &q->lock);
    int found = q->count > 0;
    if (found) {
        *item = q->items[q->from];
        q->from = (q->from + 1) % DEEP;
        q->count--;
        pthread_cond_signal(&q->less);
    }
    pthread_mutex_unlock(&q->lock);
    return found;
}

static void stage(int n) {
    int item;
    while (get(&queues[n], &item)) {
        sweep(work[n]);
        put(&queues[n + 1], item);
    }
    leave(&queues[n + 1]);
}

static void *segment(void *unused) { stage(0); return unused; }
static void *extract(void *unused) { stage(1); return unused; }
static void *vectorize(void *unused) { stage(2); return unused; }
static void *rank(void *unused) { stage(3); return unused; }
static void *(*const runs[STAGES])(void *) = {segment, extract, vectorize, rank};

static void *output(void *argument) {
    int item;
    while (get(&queues[(size_t)argument], &item)) sweep(1);
    return 0;
}

static void *cut(void *argument) {
    for (int i = 0; i < (int)(size_t)argument; i++) {
        sweep(1);
        put(&queues[0], i);
    }
    leave(&queues[0]);
    return 0;
}

static void *little(void *unused) { sweep(2000); return unused; }
static void *much(void *unused) { sweep(20000); return unused; }
static void *naps(void *unused) {
    while (!done) nanosleep(&(struct timespec){0, 1000000}, 0);
    return unused;
}

static void start(pthread_t *threads, void *(*run)(void *), int of, void *argument) {
    for (int i = 0; i < of; i++) pthread_create(&threads[i], 0, run, argument);
}

static void join(pthread_t *threads, int of) {
    for (int i = 0; i < of; i++) pthread_join(threads[i], 0);
}

static void pipeline(int stages, int items, int by_main) {
    pthread_t threads[STAGES * PER_STAGE], first, last;
    for (int n = 0; n <= stages; n++) {
        pthread_mutex_init(&queues[n].lock, 0);
        pthread_cond_init(&queues[n].more, 0);
        pthread_cond_init(&queues[n].less, 0);
        queues[n].senders = n ? PER_STAGE : 1;
    }
    for (int n = 0; n < stages; n++) start(threads + n * PER_STAGE, runs[n], PER_STAGE, 0);
    start(&last, output, 1, (void *)(size_t)stages);
    if (by_main) cut((void *)(size_t)items);
    else start(&first, cut, 1, (void *)(size_t)items), join(&first, 1);
    join(threads, stages * PER_STAGE);
    join(&last, 1);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "ferret";
    pthread_t threads[2 * PER_STAGE];
    if (!strcmp(mode, "ferret")) {
        memcpy(work, (int[STAGES]){2, 32, 2, 48}, sizeof work);
        pipeline(4, 1500, 1);
    } else if (!strcmp(mode, "dedup")) {
        memcpy(work, (int[STAGES]){4, 8, 60}, sizeof work);
        pipeline(3, 1500, 0);
    } else if (!strcmp(mode, "even")) {
        memcpy(work, (int[STAGES]){20, 20, 20, 20}, sizeof work);
        pipeline(4, 1500, 1);
    } else if (!strcmp(mode, "phases")) {
        start(threads, little, PER_STAGE, 0);
        join(threads, PER_STAGE);
        start(threads, much, PER_STAGE, 0);
        join(threads, PER_STAGE);
    } else if (!strcmp(mode, "sleepy")) {
        start(threads, much, PER_STAGE, 0);
        start(threads + PER_STAGE, naps, PER_STAGE, 0);
        join(threads, PER_STAGE);
        done = 1;
        join(threads + PER_STAGE, PER_STAGE);
    } else {
        start(threads, little, PER_STAGE, 0);
        sweep(20000);
        join(threads, PER_STAGE);
    }
    return 0;
}
