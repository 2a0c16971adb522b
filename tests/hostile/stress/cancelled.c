/* A thread that is to be cancelled frees its memory first: malloc and free are no points of cancellation. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_barrier_t ready, sent;
static int freed;

static void *work(void *arg) {
    char *kept[100];
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    for (int i = 0; i < 100; i++) kept[i] = memset(malloc(50 + (size_t)i * 1000), 1, 50);
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&sent);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    for (int i = 0; i < 100; i++) {
        kept[i] = realloc(kept[i], 60000);
        free(kept[i]);
        freed += kept[i] != NULL;
    }
    pthread_testcancel();
    return arg;
}

int main(void) {
    pthread_t t;
    void *result = NULL;
    pthread_barrier_init(&ready, NULL, 2);
    pthread_barrier_init(&sent, NULL, 2);
    pthread_create(&t, NULL, work, NULL);
    pthread_barrier_wait(&ready);
    pthread_cancel(t);
    pthread_barrier_wait(&sent);
    pthread_join(t, &result);
    printf("freed %d cancelled %d\n", freed, result == PTHREAD_CANCELED);
    return 0;
}
