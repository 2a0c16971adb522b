/* Programs that a trace must not hurt, chosen by a macro:
 *   CAUGHT    loads through NULL that a handler catches, before many pages are written
 *   HANDLER   a handler that writes to so many new pages that its thread's table of counts is replaced
 *   CANCELLED threads that are cancelled anywhere between plain and atomic accesses and copies
 *   ENDED     threads that a signal handler ends there by pthread_exit
 *   CONFINED  writes to many pages after a filter that kills for any system call but two */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 400000 };
static volatile char *pages;
static volatile long touched;

static void touch(long count) {
    for (long i = 0; i < count; i++) pages[touched++ % PAGES * PAGE] = 1;
}

#if defined(CAUGHT)
static sigjmp_buf back;
static void caught(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}
__attribute__((noinline)) static long probe(volatile long *at) { return *at; }
__attribute__((noinline)) static void hot(volatile long *at) {
    for (long i = 0; i < 1000; i++) *at = i;
}
static void run(void) {
    volatile long *word = aligned_alloc(PAGE, PAGE);
    signal(SIGSEGV, caught);
    for (volatile int i = 0; i < 1000; i++)
        if (!sigsetjmp(back, 1)) probe((long *)8);
    signal(SIGSEGV, SIG_DFL);
    for (int round = 0; round < 8; round++) {
        touch(PAGES / 8);
        hot(word);
    }
}
#elif defined(HANDLER)
static void ticked(int signal) {
    (void)signal;
    touch(2000);
}
static void run(void) {
    volatile long *word = aligned_alloc(PAGE, PAGE);
    struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, ticked);
    setitimer(ITIMER_REAL, &often, 0);
    for (time_t end = time(0) + 4; time(0) < end;)
        for (int i = 0; i < 4000000; i++) *word = i;
    setitimer(ITIMER_REAL, &never, 0);
}
#elif defined(CANCELLED) || defined(ENDED)
#include <pthread.h>
#ifdef ENDED
#define END(thread) pthread_kill(thread, SIGUSR1)
#else
#define END(thread) pthread_cancel(thread)
#endif
static const char words[64] = "words";
static void end(int signal) {
    (void)signal;
    pthread_exit(PTHREAD_CANCELED);
}
static void *work(void *argument) {
    long me = (long)argument;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
    for (long i = 0;; i++) {
        pages[i * 4099 % 1024 * PAGE + me * 64] = (char)i;
        __atomic_fetch_add((long *)&touched, 1, __ATOMIC_RELAXED);
        for (long n = 0; n < 50; n++) memcpy((char *)pages + (1024 + me) * PAGE, words, (size_t)(n & 31));
    }
}
static void run(void) {
    signal(SIGUSR1, end);
    for (int round = 0; round < 100; round++) {
        pthread_t threads[4];
        for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, (void *)i);
        usleep(500 + 7 * round);
        for (int i = 0; i < 4; i++) END(threads[i]);
        for (int i = 0; i < 4; i++) {
            void *result;
            pthread_join(threads[i], &result);
            if (result != PTHREAD_CANCELED) abort();
        }
    }
}
#else
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
static void run(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {5, filter};
    touch(1);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    touch(PAGES / 4);
    write(1, "done\n", 5);
    syscall(SYS_exit, 0);
}
#endif

int main(void) {
    pages = mmap(0, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    run();
    puts("done");
}
