/* Threads with known start routines; each allocates from its routine and says where its stack is. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>

__attribute__((noinline)) void *allocate(size_t n) { void *volatile p = malloc(n); return p; }

void *first_routine(void *arg) {
    free(allocate(50000 + (size_t)arg));
    return __builtin_frame_address(0);
}

void *second_routine(void *arg) {
    free(allocate(60000 + (size_t)arg));
    pthread_exit(__builtin_frame_address(0));
}

int c11_routine(void *arg) {
    free(allocate(70000 + (size_t)arg));
    return 7;
}

int main(void) {
    pthread_t t[8];
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 << 10);
    for (size_t i = 0; i < 8; i++)
        if (pthread_create(&t[i], i % 2 ? &attr : 0, i < 4 ? first_routine : second_routine, (void *)i)) abort();
    for (size_t i = 0; i < 8; i++) {
        void *local;
        pthread_join(t[i], &local);
        printf("%zu %lu\n", i, (unsigned long)local);
    }
    thrd_t c11;
    int result = 0;
    thrd_create(&c11, c11_routine, (void *)1);
    thrd_join(c11, &result);
    return result == 7 ? 0 : 1;
}
