/* Prints how many bytes of stack each call takes that a preload may hook: the stack below the caller is painted, the
 * call made, and the lowest changed byte found. Each kind of call is measured at its first use in a thread, again, and
 * in a coroutine, whose stack no library knows.
 *   stack_use LIBRARY        print `call bytes` lines
 *   stack_use leave HOW ROOM leave the process by _exit, _Exit, quick_exit or exit with ROOM bytes of stack above a
 *                            page that cannot be touched; `crash`: by _exit in a handler of SIGSEGV that has freed an
 *                            object, on an alternate stack of ROOM bytes more than the kernel needs */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { ROOM = 96 << 10, PAINT = 0x5a };

static const char *library;
static char *block[12];
static void *handle;
static int segment;

#define CALL(name, body) __attribute__((noinline)) static void name(void) { body; __asm__ volatile("" ::: "memory"); }
static void touch(char *p, size_t n) { for (size_t i = 0; i < n; i += 4096) p[i] = 1; }

CALL(malloc_small, block[0] = malloc(100))
CALL(malloc_page, block[1] = malloc(5000))
CALL(malloc_large, block[2] = malloc(1 << 20))
CALL(malloc_huge, block[3] = malloc(5 << 20))
CALL(calloc_large, block[4] = calloc(1, 200000))
CALL(memalign_large, block[5] = memalign(8192, 100000))
CALL(realloc_new, block[6] = realloc(NULL, 30000))
CALL(realloc_grows, block[6] = realloc(block[6], 300000))
CALL(realloc_small, block[0] = realloc(block[0], 2000))
CALL(usable_size, malloc_usable_size(block[2]))
CALL(free_small, free(block[0]))
CALL(free_page, free(block[1]))
CALL(free_large, free(block[2]))
CALL(free_huge, free(block[3]))
CALL(free_calloc, free(block[4]))
CALL(free_memalign, free(block[5]))
CALL(free_realloc, free(block[6]))
CALL(map, block[7] = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
CALL(map_shared, block[8] = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
CALL(remap, block[7] = mremap(block[7], 1 << 20, 2 << 20, MREMAP_MAYMOVE))
CALL(unmap_part, munmap(block[7] + 65536, 65536))
CALL(unmap, munmap(block[7], 2 << 20))
CALL(unmap_shared, munmap(block[8], 1 << 20))
CALL(shm_attach, block[9] = shmat(segment, NULL, 0))
CALL(shm_detach, shmdt(block[9]))
CALL(load, handle = dlopen(library, RTLD_NOW))
CALL(unload, dlclose(handle))
CALL(load_by_name, handle = dlopen("libutil.so.1", RTLD_NOW))
static void *keeps(void *p) { *(volatile char *)p = 1; return p; }
CALL(come_and_go, for (size_t i = 0; i < 3000; i++) free(keeps(malloc((1 + i % 7) << 18))))
#define RESIZE(times, n) char *p = NULL; for (size_t i = 0; i < times; i++) p = keeps(realloc(p, n)); free(p)
CALL(grow_and_shrink, RESIZE(3000, (1 + i * 5 % 13) << 17))
CALL(grow_by_steps, RESIZE(400, (1 + i % 40) << 17))
CALL(fork_wait, int p = fork(); if (!p) { free(malloc(9000)); _exit(3); } waitpid(p, NULL, 0))

static void *nothing(void *p) { return p; }
static pthread_t thread;
CALL(create, pthread_create(&thread, NULL, nothing, NULL))

static struct call { const char *name; void (*run)(void); int touched; } calls[] = {
#define ROW(name, touched) {#name, name, touched}
    ROW(malloc_small, 0), ROW(malloc_page, 1), ROW(malloc_large, 2), ROW(malloc_huge, 3), ROW(calloc_large, 4),
    ROW(memalign_large, 5), ROW(realloc_new, 6), ROW(realloc_grows, 6), ROW(realloc_small, 0), ROW(usable_size, -1),
    ROW(free_small, -1), ROW(free_page, -1), ROW(free_large, -1), ROW(free_huge, -1), ROW(free_calloc, -1),
    ROW(free_memalign, -1), ROW(free_realloc, -1), ROW(map, 7), ROW(map_shared, 8), ROW(remap, 7),
    ROW(unmap_part, -1), ROW(unmap, -1), ROW(unmap_shared, -1), ROW(shm_attach, 9), ROW(shm_detach, -1),
    ROW(load, -1), ROW(malloc_page, 1), ROW(unload, -1), ROW(load_by_name, -1), ROW(free_page, -1), ROW(unload, -1),
    ROW(create, -1), ROW(fork_wait, -1), ROW(come_and_go, -1), ROW(grow_and_shrink, -1), ROW(grow_by_steps, -1),
};
static const size_t bytes[] = {100, 5000, 1 << 20, 5 << 20, 200000, 100000, 30000, 1 << 20, 1 << 20, 4096};

/* Bytes of stack below this function that `run` changes. */
__attribute__((noinline, no_sanitize("all"))) static size_t used(void (*run)(void)) {
    volatile char *here = (volatile char *)__builtin_frame_address(0) - 256, *low = here - ROOM;
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
    shmctl(segment, IPC_RMID, NULL);
    return 0;
}
