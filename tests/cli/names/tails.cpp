// Two functions that allocate and leave by tail calls, one of them through a third.
#include <cstdio>
#include <cstdlib>
#define OUT_OF_LINE __attribute__((noinline, noclone))
OUT_OF_LINE static double *make_edges(long n) { return (double *)malloc(n); }
OUT_OF_LINE static double *make_plane(long n) { return (double *)malloc(n + 64); }
OUT_OF_LINE static double *make_nodes(long n) { return make_plane(n * 2); }
int main(int count, char **) {
    double *edges = make_edges((long)count << 20), *nodes = make_nodes((long)count << 20);
    for (long i = 0; i < 30000000; i++) {
        edges[i * 17 % 131072] += 1;
        nodes[i * 31 % 262144] += 1;
    }
    printf("%g\n", edges[3] + nodes[4]);
}
