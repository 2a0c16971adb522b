// Look-ups in a std::unordered_map whose nodes and buckets lie in known arenas. Arguments as kernels.c.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <unistd.h>
#include <unordered_map>

static char *arena[2], *top[2];
static const size_t room[2] = {64ul << 20, 64ul << 20};

// Nodes are allocated one by one, bucket arrays as arrays.
template <class T> struct Arena {
    using value_type = T;
    Arena() = default;
    template <class U> Arena(const Arena<U> &) {}
    T *allocate(size_t count) {
        int which = count > 1;
        char *p = top[which];
        top[which] += (count * sizeof(T) + 15) & ~15ul;
        if (top[which] > arena[which] + room[which]) abort();
        return reinterpret_cast<T *>(p);
    }
    void deallocate(T *, size_t) {}
    bool operator==(const Arena &) const { return true; }
    bool operator!=(const Arena &) const { return false; }
};

using Map = std::unordered_map<long, long, std::hash<long>, std::equal_to<long>, Arena<std::pair<const long, long>>>;
static Map *map;
static long n;
static volatile long sink;

__attribute__((noinline)) void lookup() {
    unsigned long rng = 88172645463325252ul;
    long sum = 0;
    for (long i = 0; i < n; i++) {
        rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
        auto it = map->find(rng % (2 * n));
        if (it != map->end()) sum += it->second;
    }
    sink = sum;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    bool step = !strcmp(argv[2], "step");
    n = step ? 2000 : 1l << 20;
    for (int i = 0; i < 2; i++) top[i] = arena[i] = static_cast<char *>(aligned_alloc(4096, room[i]));
    map = new Map;
    for (long i = 0; i < n; i++) map->emplace(i * 2, i);
    printf("object map %lu %lu\n", (unsigned long)map, sizeof *map);
    printf("object nodes %lu %lu\n", (unsigned long)arena[0], top[0] - arena[0]);
    printf("object buckets %lu %lu\n", (unsigned long)arena[1], top[1] - arena[1]);
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
