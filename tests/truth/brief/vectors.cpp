// A std::vector in every step of every thread, whose memory was used and freed before: vectors THREADS STEPS DOUBLES.
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

__attribute__((noinline)) static double scratch(std::size_t n, int step) {
    std::vector<double> values(n, step);
    double sum = 0;
    for (int round = 0; round < 24; round++) {
        values[round % n] = round;
        sum += std::accumulate(values.begin(), values.end(), 0.0);
    }
    return sum;
}

int main(int argc, char **argv) {
    if (argc != 4) return 1;
    int threads = std::atoi(argv[1]), steps = std::atoi(argv[2]);
    std::size_t n = std::strtoul(argv[3], nullptr, 10);
    std::vector<std::thread> all;
    std::vector<double> sums(threads * 16);
    for (int t = 0; t < threads; t++)
        all.emplace_back([&sums, t, steps, n] {
            { std::vector<char> used(96 << 10, 1); }
            for (int step = 0; step < steps; step++) sums[t * 16] += scratch(n, step);
        });
    for (auto &t : all) t.join();
    std::printf("%d threads\n", threads);
}
