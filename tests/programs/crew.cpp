// crew STEPS: threads of std::thread, all of which start in one routine of the library: a logger that waits, four
// workers and three loaders, each kind created at a place of its own; these live as long as the run. Main initialises,
// and then waits.
//
// Truth:
//   make_table  block: worker t of 4 has the t-th quarter
//   make_input  block: loader t of 3 has the t-th third
//   workers     the four workers and the three loaders; main and the logger do not work
//
// stdout: the sum, then a line for each thread with the nodes that it could use.
#include "affinity.h"
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace {
constexpr int kWorkers = 4, kLoaders = 3, kThreads = kWorkers + kLoaders;
constexpr std::size_t kCells = std::size_t{3} << 20;

std::mutex mutex;
std::condition_variable wake;
bool stop = false;
char nodes[kThreads + 2][64];
std::uint64_t sums[kThreads];

__attribute__((noinline)) std::uint64_t *make_table() { return new std::uint64_t[kCells]; }
__attribute__((noinline)) std::uint64_t *make_input() { return new std::uint64_t[kCells](); }

void log() {
    write_nodes(nodes[kThreads], sizeof nodes[0]);
    std::unique_lock<std::mutex> lock(mutex);
    wake.wait(lock, [] { return stop; });
}

void work(int number, int t, int of, std::uint64_t *table, int steps) {
    write_nodes(nodes[number], sizeof nodes[0]);
    const std::size_t from = kCells / of * t, to = kCells / of * (t + 1);
    std::uint64_t sum = 0;
    for (int step = 0; step < steps; step++)
        for (std::size_t i = from; i < to; i++) sum += table[i] = table[i] * 3 + i;
    sums[number] = sum;
}
} // namespace

int main(int argc, char **argv) {
    const int steps = argc > 1 ? std::atoi(argv[1]) : 20;
    std::uint64_t *table = make_table(), *input = make_input();
    std::thread logger(log);
    for (std::size_t i = 0; i < kCells; i++) table[i] = input[i] = i;
    std::vector<std::thread> team;
    for (int t = 0; t < kWorkers; t++) team.emplace_back([=] { work(t, t, kWorkers, table, steps); });
    for (int t = 0; t < kLoaders; t++) team.emplace_back([=] { work(kWorkers + t, t, kLoaders, input, steps); });
    for (auto &thread : team) thread.join();
    {
        std::lock_guard<std::mutex> lock(mutex);
        stop = true;
    }
    wake.notify_all();
    logger.join();
    write_nodes(nodes[kThreads + 1], sizeof nodes[0]);
    std::uint64_t sum = 0;
    for (std::uint64_t s : sums) sum += s;
    std::printf("sum %llu\nmain: %s\nlogger: %s\n", static_cast<unsigned long long>(sum), nodes[kThreads + 1],
                nodes[kThreads]);
    for (int t = 0; t < kWorkers; t++) std::printf("worker %d: %s\n", t, nodes[t]);
    for (int t = 0; t < kLoaders; t++) std::printf("loader %d: %s\n", t, nodes[kWorkers + t]);
}
