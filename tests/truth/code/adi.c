/* Sweeps along rows, then along columns, of one matrix by threads that a barrier separates: the usual alternating
 * direction solver. Both sweeps are inlined into the function that the threads start in.
 *
 * Truth: along the rows, each thread has one contiguous part (block); along the columns, every row of ROW bytes is split
 * over the threads (block-cyclic, period 32 KiB). Initialised by the main thread. Arguments: steps, threads. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 512, COLUMNS = 4096 }; /* a row is 32 KiB, all 16 MiB */
static double (*m)[COLUMNS];
static pthread_barrier_t together;
static int steps, threads;

static inline void along_rows(int lo, int hi)
{
	for (int r = lo; r < hi; r++)
		for (int c = 1; c < COLUMNS; c++)
			m[r][c] += 0.5 * m[r][c - 1] - 0.25 * m[r][c];
}

static inline void along_columns(int lo, int hi)
{
	for (int r = 1; r < ROWS; r++)
		for (int c = lo; c < hi; c++)
			m[r][c] += 0.5 * m[r - 1][c] - 0.25 * m[r][c];
}

static void *worker(void *arg)
{
	long t = (long)arg;
	for (int s = 0; s < steps; s++) {
		along_rows(ROWS * t / threads, ROWS * (t + 1) / threads);
		pthread_barrier_wait(&together);
		along_columns(COLUMNS * t / threads, COLUMNS * (t + 1) / threads);
		pthread_barrier_wait(&together);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	steps = argc > 1 ? atoi(argv[1]) : 50;
	threads = argc > 2 ? atoi(argv[2]) : 4;
	m = malloc(sizeof(double[ROWS][COLUMNS]));
	for (int r = 0; r < ROWS; r++)
		for (int c = 0; c < COLUMNS; c++)
			m[r][c] = (r * 7 + c) % 11;
	pthread_barrier_init(&together, NULL, threads);
	pthread_t *all = calloc(threads, sizeof *all);
	for (long t = 0; t < threads; t++)
		pthread_create(&all[t], NULL, worker, (void *)t);
	for (long t = 0; t < threads; t++)
		pthread_join(all[t], NULL);
	printf("%.3f\n", m[ROWS - 1][COLUMNS - 1]);
	return 0;
}
