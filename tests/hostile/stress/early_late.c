/* Allocations before any constructor of ours and after every destructor of ours: .preinit_array, constructors, atexit
 * handlers registered first of all, destructors of the program, of threads and of thread-local objects. Objects of each
 * time are reallocated and freed in another. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern int __cxa_atexit(void (*)(void *), void *, void *);
extern void *__dso_handle;

static char *early[6], *middle, *late;
static pthread_key_t key;

/* No stdio: it may be closed already. */
static void say(const char *words, int good) {
    char line[100];
    int n = snprintf(line, sizeof line, "%s %s\n", words, good ? "whole" : "DAMAGED");
    if (write(1, line, n) != n) _exit(9);
}

static int whole(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != (char)n) return 0;
    return 1;
}

static char *make(size_t n) { return memset(malloc(n), (char)n, n); }

static void very_last(void *unused) {
    (void)unused;
    say("last", whole(middle, 3000) && whole(late, 7001));
    free(middle);
    free(realloc(late, 90000));
    free(early[5]);
    early[5] = calloc(100, 100);
    free(early[5]);
}

static void first(int argc, char **argv, char **env) {
    (void)argc, (void)argv, (void)env;
    for (int i = 0; i < 6; i++) early[i] = make(100 + 3000 * i);
    __cxa_atexit(very_last, NULL, NULL); /* nobody's, and before all others: it runs after the destructors of all libraries */
}
__attribute__((section(".preinit_array"), used)) static void (*const entry)(int, char **, char **) = first;

__attribute__((constructor(101))) static void soon(void) {
    early[0] = realloc(early[0], 50000);
    say("constructor", whole(early[1], 3100));
    free(early[1]);
}

static void thread_object(void *p) {
    say("thread-local object", whole(p, 5003));
    free(p);
    free(make(800));
}

static void thread_value(void *p) {
    say("thread value", whole(p, 2001));
    free(p);
    static int again;
    if (again++ < 2) pthread_setspecific(key, make(2001)); /* comes again */
}

static void *work(void *arg) {
    pthread_setspecific(key, make(2001));
    __cxa_thread_atexit_impl(thread_object, make(5003), &__dso_handle);
    return arg;
}

__attribute__((destructor(101))) static void at_end(void) {
    say("destructor", whole(early[4], 12100));
    free(early[4]);
    late = make(7001);
}

int main(void) {
    pthread_t t;
    pthread_key_create(&key, thread_value);
    pthread_create(&t, NULL, work, NULL);
    pthread_join(t, NULL);
    __cxa_thread_atexit_impl(thread_object, make(5003), &__dso_handle); /* the main thread's runs in exit() */
    say("main", !memcmp(early[0], (char[100]){[0 ... 99] = 100}, 100) && whole(early[2], 6100));
    free(early[0]), free(early[2]), free(early[3]);
    middle = make(3000);
    return 21;
}
