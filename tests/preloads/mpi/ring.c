/* Four ranks: each fills a global and a heap object, passes the latter around in a ring, and adds up what came.
 *
 * Only rank 0 prints, so the output does not depend on how ranks are merged. `ring abort` ends in rank 2 by MPI_Abort
 * with status 5, `ring status` with status 3 everywhere.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 16 };

double field[N];

__attribute__((noinline, noclone)) static double *make_rows(size_t n) {
    double *p = malloc(n * sizeof *p);
    __asm__ volatile("");
    return p;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double *rows = make_rows(N), *came = make_rows(N), sum = 0, total = 0;
    for (int i = 0; i < N; i++) field[i] = rows[i] = rank * 1000 + i % 7;
    for (int step = 0; step < size; step++) {
        MPI_Sendrecv(rows, N, MPI_DOUBLE, (rank + 1) % size, 0, came, N, MPI_DOUBLE, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        memcpy(rows, came, N * sizeof *rows);
        for (int i = 0; i < N; i++) sum += came[i] + field[i];
    }
    if (argc > 1 && !strcmp(argv[1], "abort") && rank == 2) MPI_Abort(MPI_COMM_WORLD, 5);
    MPI_Reduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks, total %.0f\n", size, total);
    free(rows);
    free(came);
    MPI_Finalize();
    return argc > 1 && !strcmp(argv[1], "status") ? 3 : 0;
}
