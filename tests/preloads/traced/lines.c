// Two threads take turns, each with its part of an object: MODE says which. No turn depends on how fast the machine is.
#include <pthread.h>
#include <semaphore.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { TURNS = 1000 };

static sem_t turn[2];

struct element { double a, b, c; };
struct padded { alignas(64) double a; double b, c; };

alignas(4096) long counters[8];
alignas(4096) struct element elements[8];
alignas(4096) struct padded apart[8];
alignas(4096) struct { long head, tail; } queue;
alignas(4096) atomic_long shared_counter;
alignas(4096) long table[512];
alignas(4096) long one_after_the_other[512];

static void use(int me, int n, long *sum) {
#if MODE == 0
    counters[me]++;
#elif MODE == 1
    elements[me + 1].a += 1;
    elements[me + 1].c += 1;
#elif MODE == 2
    apart[me].a += 1;
    apart[me].c += 1;
#elif MODE == 3
    // Each moves its index on, and looks at that of the other one every other time.
    if (me == 0) {
        queue.head++;
        if (n & 1) *sum += queue.tail;
    } else {
        queue.tail++;
        if (n & 1) *sum += queue.head;
    }
#elif MODE == 4
    for (int i = 0; i < 8; i++) *sum += table[i];
#elif MODE == 6
    atomic_fetch_add(&shared_counter, 1);
#endif
}

static void *work(void *arg) {
    int me = arg != 0;
    long sum = 0;
    for (int n = 0; n < TURNS; n++) {
        sem_wait(&turn[me]);
        use(me, n, &sum);
        sem_post(&turn[!me]);
    }
    return (void *)sum;
}

// One thread after the other, with the same memory.
static void *alone(void *arg) {
    for (int round = 0; round < 100; round++)
        for (int i = 0; i < 512; i++) one_after_the_other[i] += (long)arg;
    volatile long *memory = malloc(8192);
    for (int round = 0; round < 100; round++)
        for (int i = 0; i < 1024; i++) memory[i] += 1;
    free((void *)memory);
    return 0;
}

int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 512; i++) table[i] = i;
    for (int n = 0; n < 2; n++) sem_init(&turn[n], 0, n == 0);
#if MODE == 5
    for (long n = 0; n < 6; n++) {
        pthread_create(threads, 0, alone, (void *)n);
        pthread_join(threads[0], 0);
    }
#else
    for (long n = 0; n < 2; n++) pthread_create(&threads[n], 0, work, (void *)n);
    for (int n = 0; n < 2; n++) pthread_join(threads[n], 0);
#endif
    return 0;
}
