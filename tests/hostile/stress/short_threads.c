/* Two thousand short threads, sixteen at a time; each frees what an earlier one allocated. Every third ends in
 * pthread_exit, every fifth is detached, every seventh cancelled. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 2000, TEAM = 16, SLOTS = 50 };
static _Atomic(char *) shelf[SLOTS];
static atomic_int ended, damaged;

static void leave(void *arg) { free(arg), ended++; }

static void *work(void *arg) {
    size_t n = (size_t)arg;
    char *mine = malloc(100 + n * 11);
    pthread_cleanup_push(leave, mine);
    memset(mine, (int)n, 100);
    char *theirs = atomic_exchange(&shelf[n % SLOTS], memset(malloc(3000 + n), 5, 3000));
    if (theirs && (theirs[0] != 5 || theirs[2999] != 5)) damaged++;
    free(theirs);
    if (n % 7 == 0) for (;;) usleep(100);
    if (n % 3 == 0) pthread_exit(NULL);
    pthread_cleanup_pop(1);
    return NULL;
}

int main(void) {
    pthread_t team[TEAM];
    for (size_t n = 0; n < THREADS; n += TEAM) {
        for (size_t t = 0; t < TEAM; t++)
            if (pthread_create(&team[t], NULL, work, (void *)(n + t))) return 1;
        for (size_t t = 0; t < TEAM; t++) {
            if ((n + t) % 7 == 0) pthread_cancel(team[t]);
            if ((n + t) % 5 == 0 && (n + t) % 7) pthread_detach(team[t]);
            else pthread_join(team[t], NULL);
        }
    }
    /* A thread that is cancelled before it has registered leave() is not counted. */
    for (int wait = 0; wait < 2000 && ended < THREADS * 6 / 7; wait++) usleep(1000);
    printf("threads ended: %s, damaged: %d\n", ended >= THREADS * 6 / 7 ? "all" : "NOT ALL", damaged);
    return 0;
}
