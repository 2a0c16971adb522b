/* C = A * B, then D = transposed C, in one program.
 *
 * Truth: a, c: each thread has one contiguous part in both loops that use it (block; not mixed). b: all threads read
 * all of it (read-shared). d: written by columns: every row of 32 KiB is split over the threads (block-cyclic).
 * Initialised by the main thread. Argument: steps. */
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 4096, INNER = 24, COLUMNS = 512 };
static double a[ROWS][COLUMNS], b[INNER][COLUMNS], c[ROWS][COLUMNS], d[COLUMNS][ROWS];

static void multiply(void)
{
#pragma omp parallel for schedule(static)
	for (int i = 0; i < ROWS; i++)
		for (int k = 0; k < INNER; k++)
			for (int j = 0; j < COLUMNS; j++)
				c[i][j] += a[i][k * 16] * b[k][j];
}

static void transpose(void)
{
#pragma omp parallel for schedule(static)
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLUMNS; j++)
			d[j][i] = c[i][j] * a[i][j];
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 5;
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLUMNS; j++)
			a[i][j] = (i + j) % 3;
	for (int i = 0; i < INNER; i++)
		for (int j = 0; j < COLUMNS; j++)
			b[i][j] = (i * j) % 5;
	for (int s = 0; s < steps; s++) {
		multiply();
		for (int more = 0; more < 4; more++)
			transpose();
	}
	printf("%.3f\n", d[COLUMNS - 1][ROWS - 1]);
	return 0;
}
