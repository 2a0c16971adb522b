/* Three allocations, the last two after a phase began by time; then the main thread returns, or ends by pthread_exit while
 * another thread is still at work. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) char *grab(size_t size) {
    char *p = malloc(size);
    __asm__("" : "+r"(p));
    memset(p, 1, size);
    return p;
}

static void *last(void *arg) {
    (void)arg;
    usleep(1000000);
    grab(300000);
    grab(400000);
    puts("done");
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    grab(200000);
    if (pthread_create(&thread, NULL, last, NULL) != 0) return 1;
    if (argc > 1 && strcmp(argv[1], "pthread_exit") == 0) pthread_exit(NULL);
    pthread_join(thread, NULL);
    return 0;
}
