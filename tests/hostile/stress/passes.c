/* Passes that take turns: each allocates 40 MB with a function of its own, uses and frees all of it, ten times, 24 passes.
 * passes blocks    of 20 to 120 KB
 *        nodes     of 16 to 400 bytes
 *        arrays    of 150 to 450 KB
 * Writes: page faults, and the most memory, KiB. Figures are written to standard error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { PASSES = 24, TIMES = 10, ALL = 40 << 20, MOST = ALL / 100 };

#define SITE(n)                                                    \
    __attribute__((noinline, noclone)) static char *made_##n(size_t bytes) { \
        char *p = malloc(bytes);                                   \
        if (!p) exit(3);                                           \
        memset(p, n + 1, bytes);                                   \
        return p;                                                  \
    }
SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5) SITE(6) SITE(7)

static char *(*const made[])(size_t) = {made_0, made_1, made_2, made_3, made_4, made_5, made_6, made_7};
enum { SITES = sizeof made / sizeof *made };

static unsigned below(unsigned bound) {
    static unsigned random = 1;
    random = random * 1664525 + 1013904223;
    return (random >> 8) % bound;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    size_t least = 20000, span = 100000;
    if (!strcmp(what, "nodes")) least = 16, span = 384;
    if (!strcmp(what, "arrays")) least = 150000, span = 300000;
    static char *held[MOST];
    static size_t sizes[MOST];
    /* Lies behind them in glibc's heap, which keeps its pages then. */
    char *stays = NULL;
    int damaged = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        for (int i = 0; i < TIMES; i++) {
            int count = 0;
            for (size_t all = 0; all < ALL && count < MOST; all += sizes[count++])
                held[count] = made[pass % SITES](sizes[count] = least + below((unsigned)span));
            if (!stays) stays = malloc(5000);
            for (int k = 0; k < count; k++) {
                damaged |= held[k][0] != pass % SITES + 1 || held[k][sizes[k] - 1] != pass % SITES + 1;
                free(held[k]);
            }
        }
    }
    free(stays);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    fprintf(stderr, "%ld %ld\n", used.ru_minflt, used.ru_maxrss);
    printf("damaged %d\n", damaged);
    return 0;
}
