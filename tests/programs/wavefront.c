/* Wavefront: a table of dynamic programming, tile by tile; the tiles of one anti-diagonal are worked on in parallel.
 *
 * Truth: `score` (4 MiB, malloc in alloc_score): tiles of 128 rows and 128 columns, the row of tiles r always by thread
 *        r modulo the threads: rows of tiles, block-cyclic with a period of T * 128 rows (T * 512 KiB).
 * The main thread initialises it.
 *
 * wavefront [iterations]   threads: OMP_NUM_THREADS; says `object score ADDRESS BYTES` on stderr
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1024, TILE = 128, TILES = N / TILE };
static int *score;

__attribute__((noinline)) static int *alloc_score(void) { return malloc(sizeof(int) * N * N); }

static void tile(int r, int c) {
    for (int i = r * TILE + !r; i < (r + 1) * TILE; i++)
        for (int j = c * TILE + !c; j < (c + 1) * TILE; j++) {
            int up = score[(i - 1) * N + j], left = score[i * N + j - 1], both = score[(i - 1) * N + j - 1];
            int best = up > left ? up : left;
            score[i * N + j] = (best > both + ((i ^ j) & 3) ? best : both + ((i ^ j) & 3)) & 0xffff;
        }
}

__attribute__((noinline)) static void sweep(int iterations) {
#pragma omp parallel
    {
        int me = omp_get_thread_num(), team = omp_get_num_threads();
        for (int it = 0; it < iterations; it++)
            for (int d = 0; d < 2 * TILES - 1; d++) {
                for (int r = d < TILES ? 0 : d - TILES + 1; r <= d && r < TILES; r++)
                    if (r % team == me) tile(r, d - r);
#pragma omp barrier
            }
    }
}

int main(int argc, char **argv) {
    int iterations = argc > 1 ? atoi(argv[1]) : 400;
    score = alloc_score();
    if (!score || iterations < 1) return 2;
    for (int i = 0; i < N * N; i++) score[i] = i % 7;
    fprintf(stderr, "object score %zu %zu\n", (size_t)score, sizeof(int) * N * N);
    sweep(iterations);
    unsigned long sum = 0;
    for (int i = 0; i < N * N; i++) sum = sum * 31 + score[i];
    printf("iterations %d  checksum %016lx\n", iterations, sum);
    free(score);
    return 0;
}
