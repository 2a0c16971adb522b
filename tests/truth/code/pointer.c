/* One function, called through a pointer from two loops with different schedules: static and cyclic.
 *
 * Truth: all accesses are made by `sweep`, so no two functions disagree: not mixed. Half of its accesses are one
 * contiguous part per thread, half are chunks of CHUNK bytes in turn. Initialised by the main thread. Argument: steps. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHUNK = 1 << 14, CHUNKS = 128 }; /* 128 KiB each, 16 MiB in all */
static double v[CHUNKS * CHUNK];

static void sweep(double *at, int n)
{
	for (int i = 0; i < n; i++)
		at[i] = at[i] * 0.999 + 0.001;
}

void (*volatile how)(double *, int) = sweep;

static void in_blocks(void)
{
#pragma omp parallel for schedule(static)
	for (int k = 0; k < CHUNKS; k++)
		how(v + k * CHUNK, CHUNK);
}

static void in_turn(void)
{
#pragma omp parallel for schedule(static, 1)
	for (int k = 0; k < CHUNKS; k++)
		how(v + k * CHUNK, CHUNK);
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 100;
	for (int i = 0; i < CHUNKS * CHUNK; i++)
		v[i] = i % 13;
	for (int s = 0; s < steps; s++) {
		in_blocks();
		in_turn();
	}
	printf("%.3f\n", v[CHUNKS * CHUNK - 1]);
	return 0;
}
