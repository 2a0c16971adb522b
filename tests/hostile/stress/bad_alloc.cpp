// Allocates until there is no memory: sizes that nobody has, and blocks of each size under a limit of the address space
// until std::bad_alloc comes; frees them and goes on. A new_handler gives memory back, and gives up when it has none.
// How many blocks there were is written to the file argv[1].
#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "status.h"

static long damaged, failed;

static void expect(bool is_so, const char *what) {
    if (is_so) return;
    failed++;
    fprintf(stderr, "%s\n", what);
}

template <typename F> static bool throws(F f) {
    try {
        f();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static void impossible() {
    volatile size_t most = SIZE_MAX / 2 - 64, count = SIZE_MAX / 4;
    expect(throws([&] { delete[] new char[most]; }), "new of half the address space");
    expect(throws([&] { operator delete(operator new(most)); }), "operator new");
    const std::align_val_t page{4096};
    expect(throws([&] { operator delete(operator new(most, page), page); }), "aligned");
    expect(throws([&] { delete[] new uint64_t[count]; }), "bad_array_new_length");
    expect(new (std::nothrow) char[most] == nullptr, "nothrow");
    expect(throws([&] {
               std::vector<char> v;
               v.resize(most);
           }), "vector");
}

struct Block {
    Block *next;
    size_t size;
};

/* Blocks until none is left, all of them written to; the number. */
static long until_none(size_t size, Block *&list, bool is_aligned) {
    long n = 0;
    try {
        for (;; n++) {
            void *p = is_aligned ? operator new(size, std::align_val_t(64)) : operator new(size);
            memset(p, 0x5a, size);
            list = new (p) Block{list, size};
        }
    } catch (const std::bad_alloc &) {
    }
    return n;
}

static void release(Block *&list, bool is_aligned) {
    while (Block *b = list) {
        list = b->next;
        const char *p = reinterpret_cast<char *>(b);
        for (size_t i = sizeof *b; i < b->size; i += 97) damaged += p[i] != 0x5a;
        if (is_aligned) operator delete(b, std::align_val_t(64));
        else operator delete(b);
    }
}

static const size_t limit = 192 << 20, cushion_size = 8 << 20;
static char *cushions[4];
static int handled;

static void handler() {
    handled++;
    for (char *&c : cushions)
        if (c) {
            delete[] c;
            c = nullptr;
            return;
        }
    throw std::bad_alloc();
}

int main(int argc, char **argv) {
    std::vector<long> counts;
    counts.reserve(100);
    impossible();
    rlimit r{};
    getrlimit(RLIMIT_AS, &r);
    r.rlim_cur = (size_t)status("VmSize:") * 1024 + limit;
    if (setrlimit(RLIMIT_AS, &r)) return 3;
    for (size_t size : {100, 5000, 40000, 300000, 1 << 20, 9 << 20}) {
        for (int round = 0; round < 4; round++) {
            bool is_aligned = round % 2;
            Block *list = nullptr;
            long n = until_none(size, list, is_aligned);
            counts.push_back(n);
            impossible();
            release(list, is_aligned);
            impossible();
        }
    }
    for (char *&c : cushions) {
        c = new char[cushion_size];
        memset(c, 1, cushion_size);
    }
    std::set_new_handler(handler);
    Block *list = nullptr;
    until_none(1 << 20, list, false);
    printf("handler called %d times", handled);
    std::set_new_handler(nullptr);
    release(list, false);
    impossible();
    FILE *f = argc > 1 ? fopen(argv[1], "w") : nullptr;
    if (!f) return 3;
    for (long n : counts) fprintf(f, "%ld ", n);
    fclose(f);
    printf(", failed %ld, damaged %ld\n", failed, damaged);
    return 0;
}
