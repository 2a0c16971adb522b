// Functions that the assembler may let keep the address of the thread's lines, and some that it may not: prints the
// reads and writes of `values` that each thread made.
#include <csetjmp>
#include <cstdio>
#include <pthread.h>
#ifdef PROFILED // by a function that changes what it may
__asm__(".globl mcount\nmcount: movq $-1, %r11\n\tret");
#endif

enum { WORDS = 8192 };
alignas(4096) volatile long values[WORDS];
static __thread volatile long reads, writes;

static inline long get(long i) { return reads = reads + 1, values[(unsigned long)i % WORDS]; }
static inline void put(long i, long value) { writes = writes + 1, values[(unsigned long)i % WORDS] = value; }
static inline void add(long i, long value) { put(i, get(i) + value); }
#define APART __attribute__((noinline, noclone))

// Changes all registers that a call may change.
extern "C" void spoil();
asm(".text\n.type spoil, @function\nspoil: mov $1, %eax\n mov %rax, %rcx\n mov %rax, %rdx\n mov %rax, %rsi\n"
    "mov %rax, %rdi\n mov %rax, %r8\n mov %rax, %r9\n mov %rax, %r10\n mov %rax, %r11\n ret\n.size spoil, .-spoil\n");

APART static void loop() {
    for (long i = 0; i < 3 * WORDS; i++)
        add(i, i), add(i * 7919, 1);
}

APART static void calls(long n) {
    for (long i = 0; i < n; i++) {
        for (long j = 0; j < 20; j++)
            add(i * 600 + j, 1), put(j * 512, i);
        spoil();
        add(i, 1);
    }
}

APART static long recursion(long depth) {
    add(depth * 100, 1);
    long below = depth > 0 ? recursion(depth - 1) + recursion(depth - 2) : 0;
    add(depth * 300, below);
    return get(depth) + below;
}

struct Left {
    long at;
    ~Left() { add(at, 1), add(at + 700, 1); }
};

APART static void thrower(long i) {
    Left left{i};
    add(i + 5, 1);
    if (i % 3 == 0)
        throw i;
    add(i + 6, 1);
}

APART static void exceptions() {
    for (long i = 0; i < 2000; i++) {
        Left left{i + 9};
        try {
            add(i, 1), put(i + 1, i), add(i * 513, 1);
            thrower(i);
            add(i + 2, 1);
            if (i % 7 == 0)
                throw 'c';
        } catch (long thrown) {
            add(thrown, 1), put(thrown + 513, 1), get(thrown);
        } catch (char) {
            put(i, 1), put(i + 600, 1);
        }
    }
}

static __thread jmp_buf back;
APART static void jumps(long i) {
    add(i, 1);
    if (i % 5)
        longjmp(back, 1);
}
APART static void long_jumps() {
    for (volatile long i = 0; i < 2000; i = i + 1) {
        if (setjmp(back) == 0)
            add(i, 1), jumps(i), add(i + 1, 1);
        else
            add(i + 2, 1), add(i * 512, 1);
    }
}

APART static void computed(const unsigned char *code) {
    static const void *const targets[] = {&&one, &&two, &&three, &&end};
    long i = 0;
    goto *targets[code[i]];
one:
    add(i, 1), put(i * 512, 2);
    goto *targets[code[++i]];
two:
    put(i, 1), get(i + 4000);
    spoil();
    goto *targets[code[++i]];
three:
    get(i), get(i + 1);
    goto *targets[code[++i]];
end:;
}

APART static long cases(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++)
        switch (i % 11) {
        case 0: add(i, 1); break;
        case 1: put(i, 1); break;
        case 2: sum += get(i); break;
        case 3: spoil(), add(i, 3); break;
        case 4: add(i, 1), add(i + 512, 1); break;
        case 6: sum ^= get(i * 2); break;
        case 7: put(i * 3, sum); break;
        case 9: add(i, sum); break;
        default: sum++;
        }
    return sum;
}

APART static void assembly(long n) {
    for (long i = 0; i < n; i++) {
        add(i, 1), add(i * 512, 1);
        asm volatile("mov $3, %%r11d\n syscall" : : "a"(39) : "rcx", "r11", "memory");
        add(i + 2, 1);
    }
}

__attribute__((noinline, cold)) static void rarely(long i) { spoil(), add(i, 1); }
APART static void cold_part(long n) {
    for (long i = 0; i < n; i++) {
        add(i, 1), add(i + 1, 1);
        if (__builtin_expect(i % 64 == 5, 0)) {
            add(i + 3, 1), put(i * 512, 1);
            rarely(i);
            add(i + 4, 1), add(i + 5, 2);
        }
    }
}

APART static long registers(long a, long b, long c, long d, long e, long f) {
    long g = a * b, h = c * d, j = e * f, k = a ^ d;
    for (long i = 0; i < 3000; i++) {
        long was = get(i + (g & 7)), other = get(i * 512 + (h & 7));
        a += b ^ was, b += c * 3, c ^= d + other, d += e, e ^= f + g, f += h, g ^= j + a, h += k * b, j ^= c, k += d;
        put(i, a + b + c), add(i + 1, d + e + f + g + h + j + k);
    }
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ j ^ k;
}

// A caller knows which registers a function of its file leaves alone.
__attribute__((noinline)) static long small(long i) { return add(i, 1), get(i + 1); }
APART static long known(long n) {
    long sum = 0, a = n, b = n * 3, c = n * 5, d = n * 7, e = n * 9;
    for (long i = 0; i < n; i++)
        sum += small(i) + a, a ^= b, b += c, c ^= d, d += e, e += sum;
    return sum;
}

static void *run(void *) {
    static const unsigned char code[] = {0, 1, 2, 0, 0, 2, 1, 1, 2, 0, 2, 3};
    loop(), calls(500), recursion(12), exceptions(), long_jumps(), cases(5000), assembly(300), cold_part(3000);
    for (int i = 0; i < 100; i++)
        computed(code);
    registers(1, 2, 3, 4, 5, 6), known(1000);
    printf("%ld %ld\n", reads, writes);
    return nullptr;
}

int main() {
    pthread_t thread;
    run(nullptr);
    pthread_create(&thread, nullptr, run, nullptr);
    pthread_join(thread, nullptr);
}
