// Pool of particles: one large block that main fills; particle i belongs to thread i modulo T, so that the load is
// even. Each thread moves its own and adds to a field of its own.
//
// Truth: `pool` (8 MiB, one operator new[]): every page is used by all threads alike, though each particle by one.
//        `fields` (T x 1 MiB, one operator new[]): block, each thread its own MiB.
// The main thread initialises both.
//
// particles [iterations] [threads]   says `object NAME ADDRESS BYTES` on stderr
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {
struct particle {
    double x, v, mass, charge, spare[4];
};
static_assert(sizeof(particle) == 64, "a line each");
constexpr std::size_t COUNT = 1 << 17, CELLS = 1 << 17;
particle *pool;
double *fields;
} // namespace

extern "C" __attribute__((noinline)) void move(std::size_t me, std::size_t threads) {
    double *field = fields + me * CELLS;
    for (std::size_t i = me; i < COUNT; i += threads) {
        particle &p = pool[i];
        p.x += p.v;
        if (p.x >= 1) p.x -= 1;
        field[static_cast<std::size_t>(p.x * CELLS) % CELLS] += p.charge;
    }
}

int main(int argc, char **argv) {
    int iterations = argc > 1 ? std::atoi(argv[1]) : 600, threads = argc > 2 ? std::atoi(argv[2]) : 2;
    if (iterations < 1 || threads < 1) return 2;
    pool = new particle[COUNT];
    fields = new double[CELLS * threads];
    for (std::size_t i = 0; i < COUNT; i++) {
        double x = i * 0.6180339887498949;
        pool[i] = particle{ x - static_cast<std::size_t>(x), 0.01 * (i % 7), 1, 1, {} };
    }
    for (std::size_t i = 0; i < CELLS * threads; i++) fields[i] = 0;
    auto say = [](const char *name, void *at, std::size_t bytes) {
        std::fprintf(stderr, "object %s %zu %zu\n", name, reinterpret_cast<std::size_t>(at), bytes);
    };
    say("pool", pool, COUNT * sizeof(particle));
    say("fields", fields, CELLS * threads * sizeof(double));
    std::vector<std::thread> team;
    for (int t = 0; t < threads; t++)
        team.emplace_back([=] {
            for (int it = 0; it < iterations; it++) move(t, threads);
        });
    for (auto &t : team) t.join();
    double sum = 0;
    for (std::size_t i = 0; i < COUNT; i++) sum += pool[i].x;
    std::printf("iterations %d  sum %.17g\n", iterations, sum);
    delete[] pool;
    delete[] fields;
}
