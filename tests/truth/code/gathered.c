/* A loop that compilers turn into vector gathers: only the base of the table is in a general-purpose register.
 *
 * Truth: `table` and `at` are one contiguous part per thread, as is `out`: each thread gathers from its own part only.
 * All are initialised by the main thread. Argument: steps. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 22 };
static double table[N], out[N];
static int at[N];

static void gather(double *restrict to, const double *restrict from, const int *restrict index)
{
#pragma omp parallel for simd schedule(static)
	for (int i = 0; i < N; i++)
		to[i] += 2.0 * from[index[i]];
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 20, part = N / omp_get_max_threads();
	for (int i = 0; i < N; i++) {
		table[i] = i % 13;
		at[i] = i / part * part + (int)(i * 7919L % part);
	}
	for (int s = 0; s < steps; s++)
		gather(out, table, at);
	printf("%g\n", out[N / 3]);
	return 0;
}
