/* How addresses come about, one loop for each array: `sequence` is counted through, `gathered` is indexed by `indices`,
 * `list` is followed from node to node, and `little` (8 KiB, always in a cache) is computed on. Usage: addresses ROUNDS */
#include <stdio.h>
#include <stdlib.h>

#define N (1 << 22)
#define NODES (N / 4)
#define LITTLE 1024

struct node {
	struct node *next;
	long rest[7];
};
double sequence[N], gathered[N], little[LITTLE];
unsigned indices[N];
struct node list[NODES];

__attribute__((noipa)) double sums(void)
{
	double sum = 0;
	for (long i = 0; i < N; i++)
		sum += sequence[i];
	return sum;
}

__attribute__((noipa)) double gathers(void)
{
	double sum = 0;
	for (long i = 0; i < N / 8; i++)
		sum += gathered[indices[i]];
	return sum;
}

__attribute__((noipa)) long follows(void)
{
	long nodes = 0;
	for (struct node *p = list; p && nodes < NODES / 16; p = p->next)
		nodes++;
	return nodes;
}

__attribute__((noipa)) double computes(void)
{
	double sum = 0;
	for (int round = 0; round < 100; round++)
		for (long i = 0; i < LITTLE; i++) {
			double x = little[i];
			x = x / (1 + x) + 0.5;
			x = x * x / (2 + x);
			sum += x * x / (3 + x);
		}
	return sum;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1;
	unsigned x = 1;
	for (long i = 0; i < N; i++) {
		sequence[i] = gathered[i] = i;
		x = x * 1664525u + 1013904223u;
		indices[i] = x >> 10;
	}
	/* An odd step goes through all of them. */
	for (long i = 0; i < NODES; i++)
		list[i * 7919L % NODES].next = &list[(i + 1) * 7919L % NODES];
	for (long i = 0; i < LITTLE; i++)
		little[i] = i * 1e-3;
	double sum = 0;
	while (rounds-- > 0)
		sum += sums() + gathers() + (double)follows() + computes();
	printf("%g\n", sum);
	return 0;
}
