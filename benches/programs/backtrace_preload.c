/* What the published applier of placement policies for tiered memory does on every allocation, and no more: one backtrace()
 * and one lock that all threads share, then a look-up of the stack among the wanted ones, of which there is none.
 * cc -O2 -shared -fPIC -o libbacktrace.so backtrace_preload.c */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { FRAMES = 32, WANTED = 64 };

static void *(*next)(size_t);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t wanted[WANTED][2];
static volatile int ready;
/* Of a call from backtrace itself, whose first call loads libgcc. */
static _Thread_local int inside __attribute__((tls_model("initial-exec")));

__attribute__((constructor)) static void start(void) {
    void *frames[FRAMES];
    next = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    inside = 1;
    backtrace(frames, FRAMES);
    inside = 0;
    ready = 1;
}

extern void *__libc_malloc(size_t);

void *malloc(size_t size) {
    if (!ready || inside) return __libc_malloc(size);
    void *frames[FRAMES];
    uintptr_t hash = 0;
    inside = 1;
    pthread_mutex_lock(&lock);
    int depth = backtrace(frames, FRAMES);
    for (int i = 1; i < depth; i++) hash = (hash ^ (uintptr_t)frames[i]) * 0x100000001b3u;
    int found = wanted[hash % WANTED][0] == hash && hash;
    pthread_mutex_unlock(&lock);
    inside = 0;
    return found ? __libc_malloc(size + 1) : next(size);
}
