/* A program with a pthread_setcanceltype of its own that maps memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

enum { BYTES = 300000 };

static int calls;

static char *map(void) {
    return mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int pthread_setcanceltype(int type, int *old) {
    int (*next)(int, int *) = (int (*)(int, int *))dlsym(RTLD_NEXT, "pthread_setcanceltype");
    calls++;
    munmap(map(), BYTES);
    return next(type, old);
}

int main(void) {
    int old = -1;
    for (int i = 0; i < 100; i++) munmap(map(), BYTES);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old);
    printf("calls %d old %d\n", calls, old);
    return 0;
}
