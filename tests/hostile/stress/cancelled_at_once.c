/* A hundred threads that do nothing but call one function are cancelled at any instruction, one after the other. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <unistd.h>

enum { THREADS = 100, BYTES = 300000, PAGE = 4096 };

static const char *how;
static volatile int begun;

__attribute__((noinline)) static char *map(void) {
    char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("" : "+r"(at));
    return at;
}

static void call(char *memory, int segment) {
    if (!strcmp(how, "mapped")) {
        char *at = map();
        *at = 1;
        munmap(at, BYTES);
    } else if (!strcmp(how, "resized")) {
        char *at = mremap(map(), BYTES, 2 * BYTES, MREMAP_MAYMOVE);
        munmap(at, 2 * BYTES);
    } else if (!strcmp(how, "protected")) {
        mprotect(memory, PAGE, PROT_READ);
        mprotect(memory, PAGE, PROT_READ | PROT_WRITE);
    } else if (!strcmp(how, "advised")) {
        madvise(memory, PAGE, MADV_DONTNEED);
        posix_madvise(memory, PAGE, POSIX_MADV_WILLNEED);
    } else if (!strcmp(how, "locked")) {
        mlock(memory, PAGE);
        munlock(memory, PAGE);
    } else if (!strcmp(how, "attached")) {
        shmdt(shmat(segment, NULL, 0));
    } else if (!strcmp(how, "controlled")) {
        int bytes;
        ioctl(-1, FIONREAD, &bytes);
        prctl(PR_GET_NAME, memory);
    } else {
        for (volatile int i = 0; i < 1000; i++) continue;
    }
}

static void *work(void *segment) {
    char *memory = map();
    begun = 1;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    while (begun) call(memory, *(int *)segment);
    return NULL;
}

int main(int argc, char **argv) {
    int cancelled = 0, segment = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    how = argc > 1 ? argv[1] : "";
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        void *result = NULL;
        if (pthread_create(&thread, NULL, work, &segment)) return 1;
        while (!begun) usleep(10);
        usleep(50 + i);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        begun = 0;
        cancelled += result == PTHREAD_CANCELED;
    }
    shmctl(segment, IPC_RMID, NULL);
    printf("cancelled %d\n", cancelled);
    return 0;
}
