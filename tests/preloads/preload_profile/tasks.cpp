// Threads of std::thread, all of which start in one routine of the library: three each of `read_all` and `write_all`,
// two of one lambda, and one of a std::function.
#include <functional>
#include <thread>
#include <vector>

static long sums[9];

static void read_all(int t, long n) { sums[t] = n * 3; }
static void write_all(int t, long n) { sums[t] = n * 5; }

int main() {
    std::vector<std::thread> team;
    for (int t = 0; t < 3; t++) team.emplace_back(read_all, t, 40L);
    for (int t = 3; t < 6; t++) team.emplace_back(write_all, t, 40L);
    for (int t = 6; t < 8; t++) team.emplace_back([t] { sums[t] = t; });
    std::function<void()> any = [] { sums[8] = 1; };
    team.emplace_back(any);
    for (auto &thread : team) thread.join();
}
