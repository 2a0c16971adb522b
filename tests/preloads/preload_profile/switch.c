/* Says the same a million times, and then, round by round, that samples are wanted after another thread has said at the
 * same time that they are not. After each round: an allocation of ROUND_BYTES. */
#include <numamma.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define REPEATS 1000000
#define ROUNDS 20000
#define ROUND_BYTES 100000
/* The two calls meet at all distances up to this. */
#define LONGEST_DELAY 64

static int begun, ended;

static void wait_for(int *round, int value) {
    while (__atomic_load_n(round, __ATOMIC_ACQUIRE) < value) sched_yield();
}

static void *object(void *arg) {
    for (int round = 1; round <= ROUNDS; round++) {
        wait_for(&begun, round);
        numamma_profile(0);
        __atomic_store_n(&ended, round, __ATOMIC_RELEASE);
    }
    return arg;
}

int main(void) {
    pthread_t thread;
    for (int i = 0; i < REPEATS; i++) numamma_profile(0);
    for (int i = 0; i < REPEATS; i++) numamma_profile(1);
    pthread_create(&thread, NULL, object, NULL);
    for (int round = 1; round <= ROUNDS; round++) {
        __atomic_store_n(&begun, round, __ATOMIC_RELEASE);
        for (volatile int i = 0; i < round % LONGEST_DELAY; i++) {}
        numamma_profile(1);
        wait_for(&ended, round);
        numamma_profile(1);
        free(malloc(ROUND_BYTES));
    }
    return pthread_join(thread, NULL);
}
