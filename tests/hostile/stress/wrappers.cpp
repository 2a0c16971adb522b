/* What allocations cost behind functions that allocate for others.
 * Writes to standard error, ns per pair, the least of ROUNDS: by malloc itself, operator new, a function around malloc,
 * std::string, and operator new with DEPTH callers. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

enum { ROUNDS = 20, PAIRS = 20000, DEPTH = 12 };

template <class T> static void keep(T &p) { asm volatile("" ::"r"(&p) : "memory"); }

__attribute__((noipa)) static void *own_alloc(size_t size) {
    void *p = malloc(size);
    if (!p) abort();
    return p;
}

__attribute__((noipa)) static void by_malloc() {
    for (int i = 0; i < PAIRS; i++) {
        void *p = malloc(100);
        keep(p);
        free(p);
    }
}

__attribute__((noipa)) static void by_function() {
    for (int i = 0; i < PAIRS; i++) {
        void *p = own_alloc(100);
        keep(p);
        free(p);
    }
}

__attribute__((noipa)) static void by_new() {
    for (int i = 0; i < PAIRS; i++) {
        char *p = new char[100];
        keep(p);
        delete[] p;
    }
}

__attribute__((noipa)) static void by_string() {
    for (int i = 0; i < PAIRS; i++) {
        std::string s(100, 'x');
        keep(s);
    }
}

__attribute__((noipa)) static void deeper(int depth) {
    if (depth > 0) deeper(depth - 1);
    else by_new();
    asm volatile(""); /* not a tail call */
}

static void deep() { deeper(DEPTH); }

static double now() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main() {
    void (*const ways[])() = {by_malloc, by_new, by_function, by_string, deep};
    double least[] = {1e9, 1e9, 1e9, 1e9, 1e9};
    for (int round = 0; round < ROUNDS; round++) /* a slow moment of the machine meets all of them */
        for (int way = 0; way < 5; way++) {
            double start = now();
            ways[way]();
            least[way] = std::min(least[way], (now() - start) / PAIRS);
        }
    for (int way = 0; way < 5; way++) fprintf(stderr, "%.1f%s", least[way], way == 4 ? "\n" : " ");
    puts("damaged 0");
}
