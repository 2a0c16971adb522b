// operator new: the caller that counts is the function that says `new`, not libstdc++.
#include <cstdio>
#include <string>
#include <vector>

#define NOINLINE __attribute__((noinline))

extern "C" {
NOINLINE char *scalar_new() { char *p = static_cast<char *>(::operator new(40001)); p[0] = 1; return p; }
NOINLINE char *array_new(size_t n) { char *p = new char[n]; p[0] = 1; return p; }
NOINLINE void aligned_new() {
    struct alignas(128) Wide { char bytes[40064]; };
    Wide *w = new Wide;
    w->bytes[0] = 1;
    asm volatile("" ::"r"(w) : "memory");
    delete w;
}
NOINLINE void fill_vector() { std::vector<char> v(40003); asm volatile("" ::"r"(v.data()) : "memory"); }
}

int main() {
    ::operator delete(scalar_new());
    delete[] array_new(40002);
    aligned_new();
    fill_vector();
    try { throw std::string("an exception passes our frames"); } catch (const std::string &s) { std::puts(s.c_str()); }
}
