/* One array, used by one loop in slabs of planes and by another in rows of every plane.
 *
 * Truth: in `slabs` each thread has one contiguous part (block); in `rows` every plane of PLANE bytes is split over the
 * threads (block-cyclic, period PLANE). Both take half of the accesses, in turn, in steps far shorter than the run.
 * Initialised by the main thread. Arguments: steps. */
#include <stdio.h>
#include <stdlib.h>

enum { PLANES = 64, ROWS = 64, COLUMNS = 512 }; /* a row is 4 KiB, a plane 256 KiB, all 16 MiB */
static double u[PLANES][ROWS][COLUMNS];

static void slabs(void)
{
#pragma omp parallel for schedule(static)
	for (int k = 0; k < PLANES; k++)
		for (int j = 0; j < ROWS; j++)
			for (int i = 0; i < COLUMNS; i++)
				u[k][j][i] = u[k][j][i] * 0.999 + 0.001;
}

static void rows(void)
{
#pragma omp parallel for schedule(static)
	for (int j = 0; j < ROWS; j++)
		for (int k = 0; k < PLANES; k++)
			for (int i = 0; i < COLUMNS; i++)
				u[k][j][i] = u[k][j][i] * 1.001 - 0.001;
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 200;
	for (int k = 0; k < PLANES; k++)
		for (int j = 0; j < ROWS; j++)
			for (int i = 0; i < COLUMNS; i++)
				u[k][j][i] = k + j + i;
	for (int s = 0; s < steps; s++) {
		slabs();
		rows();
	}
	printf("%.3f\n", u[PLANES - 1][ROWS - 1][COLUMNS - 1]);
	return 0;
}
