/* Two threads that write after the main thread has ended by pthread_exit. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static volatile long outlived[100000];

static void *work(void *argument) {
    (void)argument;
    usleep(100000);
    for (long i = 0; i < 1000000; i++) outlived[i * 7 % 100000] = i;
    return 0;
}

int main(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, 0);
    pthread_exit(0);
}
