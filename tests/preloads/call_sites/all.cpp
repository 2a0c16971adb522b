// Call sites of C++, one function each; the n-th allocates n MiB.
//
// all [reads and writes per object]: four threads share each object after the main thread initialised it.
#include <cstdio>
#include <cstdlib>
#include <vector>

#define SITE __attribute__((noinline, noclone))
typedef double Real;

enum { MIB = 1 << 20 };

static size_t accesses;
static volatile Real sum;

#ifdef PADDING
SITE void padding() { sum = sum * 3 + accesses; }
#endif

SITE static void use(void *p, size_t bytes) {
    volatile Real *a = static_cast<volatile Real *>(p);
    size_t words = bytes / sizeof(Real);
    for (size_t i = 0; i < words; i += 8) a[i] = 1;
    for (size_t done = 0; done < accesses; done += words / 8) {
#pragma omp parallel for schedule(static)
        for (size_t i = 0; i < words; i += 8) a[i] = a[i] * 0.5 + 1;
    }
    sum = a[0];
}

SITE void *overload(int n) { void *p = malloc(n * MIB); asm volatile("" ::: "memory"); return p; }
SITE void *overload(double n) { void *p = malloc(size_t(n) * MIB); asm volatile("nop" ::: "memory"); return p; }

namespace solver {
SITE Real *grid(size_t n) { Real *p = new Real[n / sizeof(Real)]; asm volatile("" ::: "memory"); return p; }
}

template <class T> SITE T *make(size_t n) { T *p = new T[n / sizeof(T)]; asm volatile("" ::: "memory"); return p; }

struct Mesh {
    Real *cells;
    SITE Mesh(size_t n);
};
Mesh::Mesh(size_t n) { cells = static_cast<Real *>(malloc(n)); asm volatile("" ::: "memory"); }

namespace {
SITE void *hidden(size_t n) { void *p = malloc(n); asm volatile("" ::: "memory"); return p; }
}

static inline __attribute__((always_inline)) void *inlined(size_t n) { return malloc(n); }
SITE void *outer(size_t n) { void *p = inlined(n); asm volatile("nop; nop" ::: "memory"); return p; }

SITE std::vector<Real> columns(size_t n) {
    std::vector<Real> v(n / sizeof(Real));
    asm volatile("" : : "r"(v.data()) : "memory");
    return v;
}

int main(int argc, char **argv) {
    accesses = argc > 1 ? strtoul(argv[1], nullptr, 10) : 0;
#ifdef PADDING
    padding();
#endif
    auto lambda = [](size_t n) __attribute__((noinline)) { void *p = malloc(n); asm volatile("" ::: "memory"); return p; };
    use(overload(1), 1 * MIB);
    use(overload(2.0), 2 * MIB);
    use(solver::grid(3 * MIB), 3 * MIB);
    use(make<double>(4 * MIB), 4 * MIB);
    use(make<float>(5 * MIB), 5 * MIB);
    Mesh mesh(6 * MIB);
    use(mesh.cells, 6 * MIB);
    use(hidden(7 * MIB), 7 * MIB);
    use(outer(8 * MIB), 8 * MIB);
    use(lambda(9 * MIB), 9 * MIB);
    std::vector<Real> v = columns(10 * MIB);
    use(v.data(), 10 * MIB);
    std::puts("ok");
}
