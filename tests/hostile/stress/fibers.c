/* Allocates on stacks of its own making, which have guard pages and end at an address that no unwind data describe,
 * and on the stack of its main thread. How the stacks lie:
 *   first      the main thread allocates after the fibers
 *   handler    so, after a handler on an alternate stack
 *   unlimited  the limit of the stack is removed, so that the stack could reach all mappings, which are not randomised
 *   legacy     new mappings lie above all others, so that each is the next below the stack
 *   fixed      fibers are mapped just below the stack, where it may still grow
 *   replaced   each fiber takes the place of another one of another size
 *   inside     fibers on memory of the main thread's stack
 *   thread     fibers of a thread, below its stack, after the limit of the stack was raised
 *   c11        so, in a thread of C11, which no hook of pthread_create sees
 *   deep       the main thread allocates ever deeper on its stack
 *   split      after a part of its stack was given other flags
 *   many N     N fibers in the layout of `legacy`, and prints the nanoseconds for each on stderr
 * Prints how often `own_stack` allocated, which never runs in a fiber. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, STACK = 64 << 10, FIBERS = 6, LEVELS = 900, SIZE = 1 << 20 };

typedef struct { void *sp; char *map; size_t size; } fiber;

static _Thread_local fiber own, *current;
static int on_own;

void switch_to(void **from, void *to);
__asm__(".text\n.globl switch_to\n.type switch_to, @function\n"
        "switch_to: push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15; mov %rsp, (%rdi);"
        "mov %rsi, %rsp; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret\n");

#define NOINLINE __attribute__((noinline, noclone))

NOINLINE static void grid(size_t n) {
  char *p = malloc(n);
  if (!p) abort();
  p[0] = 1, p[n - 1] = 2;
  if (p[0] + p[n - 1] != 3) puts("DAMAGED");
  free(p);
  __asm__ volatile("" ::: "memory");
}
NOINLINE static void own_stack(void) { on_own++; grid(SIZE); __asm__ volatile("" ::: "memory"); }
NOINLINE static void work(void) { grid(SIZE); __asm__ volatile("" ::: "memory"); }
NOINLINE static void yield(void) { fiber *f = current; current = &own; switch_to(&f->sp, own.sp); }
NOINLINE static void fiber_exit(void) { yield(); abort(); }

static fiber on(char *stack, size_t size) {
  fiber f = {0};
  void **top = (void **)(stack + size);
  *--top = (void *)fiber_exit;
  *--top = (void *)work;
  top -= 6;
  memset(top, 0, 48);
  f.sp = top;
  return f;
}

/* A fiber with a guard page at both ends of its stack, at an address if that is not null. */
static fiber spawn(char *where, size_t size) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED_NOREPLACE : 0);
  char *map = mmap(where, size + 2 * PAGE, PROT_NONE, flags, -1, 0);
  if (map == MAP_FAILED || (where && map != where)) { puts("no room"); exit(1); }
  mprotect(map + PAGE, size, PROT_READ | PROT_WRITE);
  fiber f = on(map + PAGE, size);
  f.map = map, f.size = size + 2 * PAGE;
  return f;
}

static void resume(fiber *f) { current = f; switch_to(&own.sp, f->sp); }

NOINLINE static void run_fibers(char *first, size_t step) {
  fiber f[FIBERS];
  for (int i = 0; i < FIBERS; i++) f[i] = spawn(first ? first + i * step : NULL, STACK);
  for (int i = 0; i < FIBERS; i++) resume(&f[i]);
}

static int c11_thread(void *unused) {
  (void)unused;
  run_fibers(NULL, 0);
  own_stack();
  run_fibers(NULL, 0);
  return 0;
}
static void *thread(void *argument) { c11_thread(argument); return argument; }

static void handler(int signal) { (void)signal; work(); }

static void handle(void) {
  stack_t stack = {.ss_sp = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                   .ss_size = STACK};
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
  sigaltstack(&stack, NULL);
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
}

NOINLINE static void deep(int levels) {
  volatile char frame[PAGE];
  frame[0] = (char)levels;
  own_stack();
  if (levels > 1) deep(levels - 1);
  frame[PAGE - 1] = frame[0];
}

/* To 0 for as far as may be. */
static void raise_limit(rlim_t to) {
  struct rlimit limit;
  getrlimit(RLIMIT_STACK, &limit);
  limit.rlim_cur = to && to < limit.rlim_max ? to : limit.rlim_max;
  setrlimit(RLIMIT_STACK, &limit);
}

static void replaced(void) {
  for (int i = 0; i < 200; i++) {
    fiber f = spawn(NULL, (i % 5 + 2) * 2 * PAGE);
    resume(&f);
    munmap(f.map, f.size);
  }
}

static void many(int n) {
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  for (int i = 0; i < n; i++) {
    fiber f = spawn(NULL, 2 * PAGE);
    resume(&f);
  }
  clock_gettime(CLOCK_MONOTONIC, &b);
  fprintf(stderr, "%.0f\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n);
}

static void in_layout(unsigned long layout, char **arguments) {
  unsigned long now = personality(0xffffffff);
  if ((now & layout) == layout) return;
  /* Some containers forbid it; then the stacks lie as in other runs. */
  if (personality(now | layout) == -1 || (personality(0xffffffff) & layout) != layout) return;
  execv("/proc/self/exe", arguments);
}

static const char *how;
static int is(const char *name) { return !strcmp(how, name); }

int main(int count, char **arguments) {
  how = count > 1 ? arguments[1] : "first";
  if (is("unlimited")) in_layout(ADDR_NO_RANDOMIZE, arguments);
  if (is("legacy") || is("many")) in_layout(ADDR_NO_RANDOMIZE | ADDR_COMPAT_LAYOUT, arguments);
  if (is("unlimited")) raise_limit(0);
  if (is("thread")) raise_limit((rlim_t)64 << 30);
  if (is("handler")) handle();
  if (!is("first") && !is("handler")) own_stack();
  if (is("thread")) {
    pthread_t t;
    pthread_create(&t, NULL, thread, NULL);
    pthread_join(t, NULL);
  } else if (is("c11")) {
    thrd_t t;
    thrd_create(&t, c11_thread, NULL);
    thrd_join(t, NULL);
  } else if (is("fixed")) {
    char *near = (char *)((uintptr_t)&count & -(uintptr_t)(1 << 20)) - (3 << 20);
    run_fibers(near, 2 * STACK);
    own_stack();
    run_fibers(near + (1 << 20), 2 * STACK);
  } else if (is("replaced")) {
    replaced();
  } else if (is("inside")) {
    static char *stack;
    stack = alloca(STACK);
    fiber f = on((char *)((uintptr_t)(stack + 63) & -64), STACK - 64);
    resume(&f);
  } else if (is("deep")) {
    deep(LEVELS);
  } else if (is("split")) {
    char part[16 * PAGE];
    char *whole = (char *)((uintptr_t)(part + PAGE) & -(uintptr_t)PAGE);
    if (madvise(whole, 8 * PAGE, MADV_DONTFORK)) puts("not split");
    own_stack();
    deep(LEVELS / 2);
  } else if (is("many")) {
    many(count > 2 ? atoi(arguments[2]) : 1000);
  } else {
    run_fibers(NULL, 0);
  }
  own_stack();
  own_stack();
  printf("%d on its own stack\n", on_own);
}
