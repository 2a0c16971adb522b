// Look-ups in a std::map whose nodes lie in a known arena. Arguments as kernels.c.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <unistd.h>

static char *arena, *top;
static const size_t room = 128ul << 20;

template <class T> struct Arena {
    using value_type = T;
    Arena() = default;
    template <class U> Arena(const Arena<U> &) {}
    T *allocate(size_t count) {
        char *p = top;
        top += (count * sizeof(T) + 15) & ~15ul;
        if (top > arena + room) abort();
        return reinterpret_cast<T *>(p);
    }
    void deallocate(T *, size_t) {}
    bool operator==(const Arena &) const { return true; }
    bool operator!=(const Arena &) const { return false; }
};

static std::map<long, long, std::less<long>, Arena<std::pair<const long, long>>> *tree;
static long n;
static volatile long sink;

__attribute__((noinline)) void lookup() {
    unsigned long rng = 88172645463325252ul;
    long sum = 0;
    for (long i = 0; i < n; i++) {
        rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
        auto it = tree->find(rng % (2 * n));
        if (it != tree->end()) sum += it->second;
    }
    sink = sum;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    bool step = !strcmp(argv[2], "step");
    n = step ? 2000 : 1l << 20;
    top = arena = static_cast<char *>(aligned_alloc(4096, room));
    tree = new std::map<long, long, std::less<long>, Arena<std::pair<const long, long>>>;
    for (long i = 0; i < n; i++) tree->emplace(i * 2, i);
    printf("object tree %lu %lu\n", (unsigned long)tree, sizeof *tree);
    printf("object nodes %lu %lu\n", (unsigned long)arena, top - arena);
    fflush(stdout);
    if (step) {
        lookup();
        __asm__ volatile("int3");
        lookup();
        __asm__ volatile("int3");
        return 0;
    }
    char line[16];
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    timespec t0, t;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    do {
        lookup();
        clock_gettime(CLOCK_MONOTONIC, &t);
    } while (t.tv_sec - t0.tv_sec + (t.tv_nsec - t0.tv_nsec) * 1e-9 < atof(argv[2]));
    return 0;
}
