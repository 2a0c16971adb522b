// Functions that are entered in their middle, one from a function within it: prints the reads and writes of `values`.
#include <stdio.h>
#ifdef PROFILED // by a function that changes what it may
__asm__(".globl mcount\nmcount: movq $-1, %r11\n\tret");
#endif

enum { WORDS = 8192 };
_Alignas(4096) volatile long values[WORDS];
static volatile long reads, writes;

#define get(i) (reads = reads + 1, values[(i) % WORDS])
#define put(i, value) (writes = writes + 1, values[(i) % WORDS] = (value))
#define add(i, value) put(i, get(i) + (value))

__attribute__((noinline)) static void call(void (*function)(long), long i) { function(i), add(i, 1), put(i + 512, 1); }

__attribute__((noinline)) static void entered(void) {
    __label__ out;
    long i = 0;
    void leave(long at) {
        add(at, 1), add(at * 512, i);
        if (at % 3 == 0)
            goto out;
    }
next:
    for (; i < 3000; i++)
        add(i, 1), call(leave, i), add(i + 1, 1);
    return;
out:
    add(i, 1), put(i + 3, 1);
    i++;
    goto next;
}

static void *buffer[5];
__attribute__((noinline)) static void jumps(long i) {
    add(i, 1);
    if (i % 2)
        __builtin_longjmp(buffer, 1);
}
__attribute__((noinline)) static void builtin_jumps(void) {
    for (volatile long i = 0; i < 2000; i++)
        if (__builtin_setjmp(buffer) == 0)
            add(i, 1), jumps(i), add(i + 1, 1);
        else
            add(i + 2, 1), add(i * 512, 1);
}

int main(void) {
    entered(), builtin_jumps();
    printf("%ld %ld\n", reads, writes);
    return 0;
}
