/* The matrix-vector product and the vector updates of a sparse solver.
 *
 * Truth: p: in `product` all threads read all of it at random places, in `update` each thread has one contiguous part:
 * mixed. values, columns, q: one contiguous part per thread in all loops (block). Initialised by the main thread.
 * Argument: steps. */
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1 << 19, PER_ROW = 2 };
static double values[ROWS][PER_ROW], p[ROWS], q[ROWS];
static int columns[ROWS][PER_ROW];

static void product(void)
{
#pragma omp parallel for schedule(static)
	for (int i = 0; i < ROWS; i++) {
		double sum = 0;
		for (int k = 0; k < PER_ROW; k++)
			sum += values[i][k] * p[columns[i][k]];
		q[i] = sum;
	}
}

static double update(double beta)
{
	double sum = 0;
	for (int more = 0; more < 3; more++) {
#pragma omp parallel for schedule(static) reduction(+ : sum)
		for (int i = 0; i < ROWS; i++) {
			p[i] = q[i] * 0.01 + beta * p[i];
			sum += p[i] * q[i];
		}
	}
	return sum;
}

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 50;
	unsigned state = 1;
	for (int i = 0; i < ROWS; i++) {
		p[i] = i % 7;
		for (int k = 0; k < PER_ROW; k++) {
			state = state * 1664525u + 1013904223u;
			values[i][k] = state % 10 * 0.01;
			columns[i][k] = state / 5 % ROWS;
		}
	}
	double sum = 0;
	for (int s = 0; s < steps; s++) {
		product();
		sum += update(0.5);
	}
	printf("%.6f\n", sum);
	return 0;
}
