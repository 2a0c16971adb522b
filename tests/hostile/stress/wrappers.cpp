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
    for (auto way : ways) {
        double least = 1e9;
        for (int round = 0; round < ROUNDS; round++) {
            double start = now();
            way();
            least = std::min(least, (now() - start) / PAIRS);
        }
        fprintf(stderr, "%.1f%s", least, way == deep ? "\n" : " ");
    }
    puts("damaged 0");
}
