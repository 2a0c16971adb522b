// Hash table: threads count the keys of their own slice of a list in one table that all share.
//
// Truth: `table` (8 MiB, calloc in make_table): random, read and written by all threads everywhere.
//        `keys` (4 MiB, malloc in make_keys): block, one contiguous slice a thread.
// The main thread initialises both.
//
// hashtable [iterations] [threads]   says `object NAME ADDRESS BYTES` on stderr
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {
struct entry {
    std::atomic<std::uint64_t> key, count;
};
constexpr std::size_t SLOTS = 1 << 19, KEYS = 1 << 19;
entry *table;
std::uint64_t *keys;

__attribute__((noinline)) entry *make_table() { return static_cast<entry *>(std::malloc(SLOTS * sizeof(entry))); }
__attribute__((noinline)) std::uint64_t *make_keys() {
    return static_cast<std::uint64_t *>(std::malloc(KEYS * sizeof(std::uint64_t)));
}
} // namespace

extern "C" __attribute__((noinline)) void count(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; i++) {
        std::uint64_t key = keys[i], at = key * 0x9e3779b97f4a7c15u >> 45;
        for (;; at = (at + 1) % SLOTS) {
            std::uint64_t empty = 0;
            if (table[at].key.load(std::memory_order_relaxed) == key) break;
            if (table[at].key.compare_exchange_strong(empty, key) || empty == key) break;
        }
        table[at].count.fetch_add(1, std::memory_order_relaxed);
    }
}

int main(int argc, char **argv) {
    int iterations = argc > 1 ? std::atoi(argv[1]) : 200, threads = argc > 2 ? std::atoi(argv[2]) : 2;
    if (iterations < 1 || threads < 1) return 2;
    table = make_table(), keys = make_keys();
    for (std::size_t i = 0; i < SLOTS; i++) table[i].key = 0, table[i].count = 0;
    std::uint64_t seed = 1;
    for (std::size_t i = 0; i < KEYS; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        keys[i] = (seed >> 46) + 1;
    }
    std::fprintf(stderr, "object table %zu %zu\n", reinterpret_cast<std::size_t>(table), SLOTS * sizeof(entry));
    std::fprintf(stderr, "object keys %zu %zu\n", reinterpret_cast<std::size_t>(keys), KEYS * sizeof(std::uint64_t));
    std::vector<std::thread> team;
    for (int t = 0; t < threads; t++)
        team.emplace_back([=] {
            for (int it = 0; it < iterations; it++) count(KEYS * t / threads, KEYS * (t + 1) / threads);
        });
    for (auto &t : team) t.join();
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < SLOTS; i++) sum += table[i].key * table[i].count;
    std::printf("iterations %d  checksum %016lx\n", iterations, static_cast<unsigned long>(sum));
    std::free(table);
    std::free(keys);
}
