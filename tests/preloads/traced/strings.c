// Truth: main fills the arrays, and a second thread copies, fills, compares and searches them with the C library's
// functions, each ROUNDS times. One access counts for eight bytes of a page; each array begins with a page.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 16 * 4096, ROUNDS = 5, PART = 2 * 4096, ODD = 4097 };

#define ARRAY __attribute__((aligned(4096))) char

struct large { char bytes[PART]; };
__attribute__((aligned(4096))) struct large assigned, zeroed, of_constant;
static const struct large constants;

ARRAY source[BYTES], copied[BYTES], moved[BYTES], filled[BYTES], compared[BYTES], constant[BYTES];
ARRAY text[BYTES], same_text[BYTES], cut[BYTES], joined[BYTES], by_library[BYTES];
static volatile size_t bytes = BYTES, rounds = ROUNDS, odd = ODD;
static volatile long sink;

// Keeps the compiler from concluding anything from what was there before.
#define APART __asm__ volatile("" ::: "memory")

// Hooks announce both sides, and gcc calls memcpy behind them.
__attribute__((noinline)) static void assign(struct large *to, const struct large *from) {
    *to = *from;
}

static int by_first(const void *a, const void *b) {
    const long *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void *use(void *unused) {
    for (size_t round = 0; round < rounds; round++) {
        memcpy(copied, source, bytes);
        APART;
        memmove(moved, source, odd);
        APART;
        memset(filled, 7, bytes);
        APART;
        memset(constant, (int)round, PART);
        APART;
        compared[ODD - 1] = 1; // differs there
        sink += memcmp(compared, source, bytes);
        APART;
        sink += strlen(text);
        APART;
        sink += strcmp(text, same_text);
        APART;
        strncpy(cut, text, odd);
        APART;
        joined[0] = 0;
        APART;
        strcat(joined, text);
        APART;
        sink += (strchr(text, '!') != NULL) + (memchr(text, '.', odd) != NULL);
        APART;
        assign(&assigned, &zeroed);
        APART;
        of_constant = constants;
        APART;
    }
    // The C library copies by its own memcpy, which is not the program's access.
    qsort(by_library, BYTES / 64, 64, by_first);
    return unused;
}

int main(void) {
    memset(text, 'x', BYTES - 1);
    memset(same_text, 'x', BYTES - 1);
    text[BYTES - 2] = same_text[BYTES - 2] = '!';
    pthread_t thread;
    pthread_create(&thread, NULL, use, NULL);
    pthread_join(thread, NULL);
    // What they did is right.
    return memcmp(copied, source, bytes) != 0 || filled[BYTES - 1] != 7 || memcmp(joined, text, bytes) != 0 ||
           strlen(cut) != ODD || memcmp(cut, text, odd) != 0;
}
