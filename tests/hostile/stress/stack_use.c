/* Prints how many bytes of stack each call takes that a preload may hook: the stack below the caller is painted, the
 * call made, and the lowest changed byte found. Each kind of call is measured at its first use in a thread, again, and
 * in a coroutine, whose stack no library knows, and in a child that has confined itself.
 *   stack_use LIBRARY        print `call bytes` lines
 *   stack_use calls          print the text of each call
 *   stack_use leave HOW ROOM leave the process by _exit, _Exit, quick_exit or exit with ROOM bytes of stack above a
 *                            page that cannot be touched; `crash`: by _exit in a handler of SIGSEGV that has freed an
 *                            object, on an alternate stack of ROOM bytes more than the kernel needs */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <termios.h>
#include <ucontext.h>
#include <unistd.h>

#include "stack_calls.h"

enum { ROOM = 96 << 10, PAINT = 0x5a };

/* Bytes of stack below this function that `run` changes. */
__attribute__((noinline, no_sanitize("all"))) static size_t used(void (*run)(void)) {
    volatile char *here;
    __asm__ volatile("mov %%rsp, %0" : "=r"(here));
    volatile char *low = here - ROOM;
    for (volatile char *p = here; p > low;) *--p = PAINT;
    run();
    while (low < here && *low == PAINT) low++;
    return (size_t)(here - low);
}

static void measure(const char *where) {
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        size_t n = used(calls[i].run);
        printf("%s/%zu-%s %zu\n", where, i, calls[i].name, n);
        if (calls[i].touched >= 0) touch(block[calls[i].touched], bytes[calls[i].touched]);
        if (calls[i].run == create) pthread_join(thread, NULL);
    }
}

/* In a child that has confined itself: the libraries make no system call of their own there. */
static void measure_confined(void) {
    fflush(stdout);
    pid_t p = fork();
    if (!p) {
        size_t n = used(confine);
        printf("confine %zu\n", n);
        measure("confined");
        exit(0);
    }
    int status = 0;
    waitpid(p, &status, 0);
    if (status) exit(9);
}

static void *in_thread(void *where) { return measure(where), NULL; }

static void a_thread(const char *where) {
    pthread_attr_t a;
    pthread_t t;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 2 * ROOM);
    pthread_create(&t, &a, in_thread, (void *)where);
    pthread_join(t, NULL);
}

static ucontext_t outside, inside;
static void coroutine(void) { measure("coroutine"); }

static const char *how;
static void leave(void) {
    if (!strcmp(how, "_exit")) _exit(7);
    if (!strcmp(how, "_Exit")) _Exit(7);
    if (!strcmp(how, "quick_exit")) quick_exit(7);
    exit(7);
}

/* Calls `run` with `room` bytes of stack above a page that cannot be touched. */
static void with_room(void (*run)(void), size_t room) {
    char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p, 1 << 19, PROT_NONE)) abort();
    char *top = p + (1 << 19) + (room & ~(size_t)15);
    __asm__ volatile("mov %%rsp, %%rbx\n mov %0, %%rsp\n call *%1\n mov %%rbx, %%rsp"
                     : : "r"(top), "r"(run)
                     : "rbx", "memory", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
}

static void handler(int sig) {
    free(block[3]);
    free(block[0]);
    _exit(sig == SIGSEGV ? 7 : 8);
}

static void crash(size_t room) {
    size_t size = (getauxval(AT_MINSIGSTKSZ) + room + 4095) & ~(size_t)4095;
    char *p = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p, 4096, PROT_NONE)) abort();
    stack_t alternate = {.ss_sp = p + 4096 + size - getauxval(AT_MINSIGSTKSZ) - room,
                         .ss_size = getauxval(AT_MINSIGSTKSZ) + room};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&alternate, NULL) || sigaction(SIGSEGV, &action, NULL)) abort();
    *(volatile int *)8 = 1;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    if (argc == 4) {
        how = argv[2];
        for (int i = 0; i < 8; i++) touch(block[i] = malloc(50000 << i), 50000 << i);
        if (!strcmp(how, "crash")) crash((size_t)atol(argv[3]));
        with_room(leave, (size_t)atol(argv[3]));
    }
    library = argv[1];
    for (size_t i = 0; !strcmp(library, "calls") && i < sizeof calls / sizeof calls[0]; i++) puts(calls[i].text);
    if (!strcmp(library, "calls")) return 0;
    segment = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    a_thread("first-thread");
    a_thread("second-thread");
    measure("main");
    getcontext(&inside);
    inside.uc_stack.ss_sp = malloc(2 * ROOM);
    inside.uc_stack.ss_size = 2 * ROOM;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    swapcontext(&outside, &inside);
    measure_confined();
    shmctl(segment, IPC_RMID, NULL);
    return 0;
}
