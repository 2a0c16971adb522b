/* A ring of threads: what one allocates, the next reallocates and the third frees. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEAM = 6, ROUNDS = 4000, DEPTH = 64 };
struct channel { sem_t free, full; char *item[DEPTH]; unsigned head, tail; };
static struct channel channels[TEAM];
static long damaged;

static void put(struct channel *c, char *p) {
    sem_wait(&c->free);
    c->item[c->head++ % DEPTH] = p;
    sem_post(&c->full);
}

static char *take(struct channel *c) {
    sem_wait(&c->full);
    char *p = c->item[c->tail++ % DEPTH];
    sem_post(&c->free);
    return p;
}

/* Groups of three: make, change, drop. */
static void *work(void *arg) {
    size_t me = (size_t)arg;
    for (size_t i = 0; i < ROUNDS; i++) {
        size_t size = 40 + i * 37 % (i % 10 ? 1500 : 30000);
        if (me % 3 == 0) {
            put(&channels[me], memset(i % 4 ? malloc(size) : aligned_alloc(64, (size + 63) / 64 * 64), (int)i, 40));
            continue;
        }
        char *p = take(&channels[me - 1]);
        for (int k = 0; k < 40; k++)
            if (p[k] != (char)i) __atomic_add_fetch(&damaged, 1, __ATOMIC_RELAXED);
        if (me % 3 == 1) put(&channels[me], i % 2 ? realloc(p, size * 2) : p);
        else free(p);
    }
    return NULL;
}

int main(void) {
    pthread_t team[TEAM];
    for (int t = 0; t < TEAM; t++) sem_init(&channels[t].free, 0, DEPTH), sem_init(&channels[t].full, 0, 0);
    for (size_t t = 0; t < TEAM; t++) pthread_create(&team[t], NULL, work, (void *)t);
    for (int t = 0; t < TEAM; t++) pthread_join(team[t], NULL);
    printf("damaged %ld\n", damaged);
    return 0;
}
