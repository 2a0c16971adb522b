/* The first memory that a thread frees, the first of the program, is freed while the thread is to be cancelled. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int freed;

/* An array whose last byte is written, which no compiler leaves out. */
static void use(size_t n) {
    char *volatile array = malloc(n);
    array[n - 1] = 1;
    free(array);
}

static void *cancelled(void *arg) {
    pthread_cancel(pthread_self());
    use(200000);
    freed = 1;
    pthread_testcancel();
    return arg;
}

static void *work(void *arg) {
    for (size_t i = 0; i < 1000; i++) use(100000 + i * 200);
    return arg;
}

int main(void) {
    pthread_t t, team[4];
    void *result = NULL;
    pthread_create(&t, NULL, cancelled, NULL);
    pthread_join(t, &result);
    for (int i = 0; i < 4; i++) pthread_create(&team[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++) pthread_join(team[i], NULL);
    printf("freed %d cancelled %d\n", freed, result == PTHREAD_CANCELED);
    return 0;
}
