/* Two threads sweep `grid`, a half each; with MPI, in rank 0 both also read `table` at random for half of the time.
 *
 * ranks SECONDS [RANK]: CPU time of each thread. Without -DMPI a program on its own, which does as a rank; as 1 if none
 * is given.
 */
#ifdef MPI
#include <mpi.h>
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 2, N = 1 << 21, TABLE = 1 << 23 };

static double *grid, *table, sums[THREADS][8];
static int rank;
static double seconds;

__attribute__((noinline, noclone)) static double *make_grid(size_t n) {
    double *p = malloc(n * sizeof *p);
    __asm__ volatile("");
    return p;
}

__attribute__((noinline, noclone)) static double *make_table(size_t n) {
    double *p = malloc(n * sizeof *p);
    __asm__ volatile("");
    return p;
}

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noinline, noclone)) static double sweep(size_t from, size_t to) {
    double sum = 0;
    for (size_t i = from; i < to; i++) sum += grid[i] = grid[i] * 0.5 + 1;
    return sum;
}

__attribute__((noinline, noclone)) static double look_up(uint64_t *state) {
    double sum = 0;
    for (int i = 0; i < N / 16; i++) { /* TABLE = 2^(64 - 41) */
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += table[*state >> 41];
    }
    return sum;
}

static void *work(void *arg) {
    size_t me = (size_t)arg;
    uint64_t state = me;
    double swept = 0, looked = 0;
    while (swept + looked < seconds) {
        double start = cpu();
        if (rank == 0 && looked < swept) {
            sums[me][0] += look_up(&state);
            looked += cpu() - start;
        } else {
            sums[me][0] += sweep(me * N / THREADS, (me + 1) * N / THREADS);
            swept += cpu() - start;
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
#ifdef MPI
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#else
    rank = argc > 2 ? atoi(argv[2]) : 1;
#endif
    seconds = argc > 1 ? atof(argv[1]) : 1;
    grid = make_grid(N);
    table = make_table(TABLE);
    for (size_t i = 0; i < N; i++) grid[i] = 1;
    for (size_t i = 0; i < TABLE; i++) table[i] = 1;
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, work, (void *)t);
    for (size_t t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
#ifdef MPI
    MPI_Finalize();
#endif
    return sums[0][0] + sums[1][0] > 0 ? 0 : 1;
}
