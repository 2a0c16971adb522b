// The same fields as members of two globals: of a class with a base, and of a plain C struct.
//
// Truth: (both) one member that the threads divide into slices, one that they divide in the reverse order, one that all
//        read at random, and small members between them that are not worth a part.
// The main thread initialises everything, so first touch puts every page on its node.
//
// fields [threads [iterations [pages]]]        pages: prints where the pages of every member are, by the kernel
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
#include <sys/syscall.h>
#include <unistd.h>

constexpr long SLICED = 400000, TABLE = 300001;

extern "C" {
struct state {
    int steps;
    double up[SLICED];
    char name[24];
    double down[SLICED];
    unsigned table[TABLE];
    long used;
};
struct state plain;
}

struct Base {
    virtual ~Base() = default;
    double up[SLICED];
    short flags[3];
};

class Mesh : public Base {
public:
    std::array<double, SLICED> down;
    int level;
    unsigned table[TABLE];
};
Mesh mesh;

static void work(long t, long threads, long iterations, double *sum) {
    // Slices that divide SLICED evenly for 8 threads.
    long own = SLICED / threads, low = t * own, back = SLICED - low - own;
    // One loop for each member: under an emulator samples fall on the ends of loops only.
    unsigned random = 2654435761u * (t + 1);
    double s = 0;
    for (long it = 0; it < iterations; it++) {
        for (long i = low; i < low + own; i++) mesh.up[i] += 0.5;
        for (long i = low; i < low + own; i++) plain.up[i] += 1;
        for (long i = back; i < back + own; i++) mesh.down[i] += 0.25;
        for (long i = back; i < back + own; i++) plain.down[i] += 2;
        for (long i = 0; i < own; i++) s += mesh.table[(random += 2654435769u) % TABLE];
        for (long i = 0; i < own; i++) s += plain.table[(random += 2654435769u) % TABLE];
    }
    *sum = s;
}

static void show(const char *name, const void *base, size_t size) {
    enum { PAGE = 4096 };
    uintptr_t low = ((uintptr_t)base + PAGE - 1) & -(uintptr_t)PAGE, high = ((uintptr_t)base + size) & -(uintptr_t)PAGE;
    std::vector<void *> pages;
    for (uintptr_t at = low; at < high; at += PAGE) pages.push_back((void *)at);
    std::vector<int> node(pages.size(), -1);
    if (syscall(SYS_move_pages, 0, pages.size(), pages.data(), nullptr, node.data(), 0) != 0) perror("move_pages");
    printf("pages %s %zu", name, (size_t)(low - (uintptr_t)base));
    for (int n : node) printf(" %d", n);
    printf("\n");
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 4, iterations = argc > 2 ? atol(argv[2]) : 100;
    for (long i = 0; i < SLICED; i++) mesh.up[i] = plain.up[i] = i % 7, mesh.down[i] = plain.down[i] = 0;
    for (long i = 0; i < TABLE; i++) mesh.table[i] = plain.table[i] = i % 11;
    std::vector<double> sums(threads * 16);
    std::vector<std::thread> pool;
    for (long t = 0; t < threads; t++) pool.emplace_back(work, t, threads, iterations, &sums[t * 16]);
    for (auto &thread : pool) thread.join();
    double sum = 0;
    for (long t = 0; t < threads; t++) sum += sums[t * 16];
    for (long i = 0; i < SLICED; i += 97) sum += mesh.down[i] + plain.down[i];
    printf("sum %.17g\n", sum);
    if (argc > 3) {
        show("mesh.up", mesh.up, sizeof mesh.up), show("mesh.down", mesh.down.data(), sizeof mesh.down);
        show("plain.up", plain.up, sizeof plain.up), show("plain.down", plain.down, sizeof plain.down);
        show("mesh.table", mesh.table, sizeof mesh.table), show("plain.table", plain.table, sizeof plain.table);
    }
}
