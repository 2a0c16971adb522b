// The call sites of PARSEC's streamcluster that policies/streamcluster.toml names, in C++.
#include <cstdio>
#include <cstdlib>

struct PStream {
    virtual size_t read(float *into, size_t floats) = 0;
};

struct SimStream : PStream {
    size_t read(float *into, size_t floats) override {
        for (size_t i = 0; i < floats; i++) into[i] = float(i % 97);
        return floats;
    }
};

static volatile double sum;

__attribute__((noinline)) double pkmedian(float *points, size_t floats) {
    double *costs = new double[floats / 8];
    for (size_t i = 0; i < floats / 8; i++) costs[i] = points[i * 8];
    double total = costs[floats / 16];
    delete[] costs;
    return total;
}

__attribute__((noinline)) void streamCluster(PStream *stream, long chunk, int dimensions) {
    size_t floats = size_t(chunk) * size_t(dimensions);
    float *block = static_cast<float *>(malloc(floats * sizeof(float)));
    stream->read(block, floats);
    sum = pkmedian(block, floats);
    free(block);
}

int main() {
    SimStream stream;
    streamCluster(&stream, 1 << 14, 32);
    std::puts("ok");
}
