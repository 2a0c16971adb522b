// Eight threads allocate placed objects, hand them on to each other and free those of others.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, ROUNDS = 1000, SIZE = 3 * 4096 };
static char *volatile slots[64];

__attribute__((noinline)) char *make(void) { char *p = malloc(SIZE); __asm__ volatile(""); return p; }

static void *work(void *arg) {
    unsigned state = (unsigned)(size_t)arg + 1;
    for (int i = 0; i < ROUNDS; i++) {
        char *mine = make();
        char value = (char)(1 + i % 100);
        memset(mine, value, SIZE);
        state = state * 1103515245 + 12345;
        char *other = __atomic_exchange_n(&slots[(state >> 16) % 64], mine, __ATOMIC_ACQ_REL);
        if (other) {
            for (int k = 1; k < SIZE; k++) if (other[k] != other[0]) exit(99);
            free(other);
        }
    }
    return NULL;
}

int main(void) {
    pthread_t id[THREADS];
    for (long t = 0; t < THREADS; t++) if (pthread_create(&id[t], NULL, work, (void *)t)) return 98;
    for (int t = 0; t < THREADS; t++) pthread_join(id[t], NULL);
    for (int i = 0; i < 64; i++) free(slots[i]);
    puts("ok");
    return 0;
}
