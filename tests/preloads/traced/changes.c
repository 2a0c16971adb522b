/* Programs with known findings, chosen by a macro:
 *   RANDOM  two threads update a half of 128 MiB each at random
 *   SWEPT   the same in sequence
 *   UNEVEN  a triangular loop of an OpenMP team of four, in equal numbers of rows
 *   SHORT   a hundred threads with the same work each */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 16 << 20, ROWS = 1000, THREADS = 100 };
static long table[WORDS], sums[THREADS];

#if defined(RANDOM) || defined(SWEPT)
static void *work(void *argument) {
    unsigned long half = WORDS / 2, first = (unsigned long)argument * half, x = 1 + first;
    for (unsigned long i = 0; i < 3000000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
#ifdef SWEPT
        table[first + i]++;
#else
        table[first + (x >> 33) % half]++;
#endif
    }
    return NULL;
}
enum { STARTED = 2 };
#elif defined(SHORT)
static void *work(void *argument) {
    for (int i = 0; i < 20000; i++) sums[(long)argument] += table[i];
    return NULL;
}
enum { STARTED = THREADS };
#endif

int main(void) {
#ifdef UNEVEN
    for (int times = 0; times < 8; times++) {
#pragma omp parallel for schedule(static) num_threads(4)
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j <= i; j++) table[i * ROWS + j]++; /* the loop of the team */
    }
#else
    pthread_t threads[STARTED];
    for (long t = 0; t < STARTED; t++) pthread_create(&threads[t], NULL, work, (void *)t);
    for (long t = 0; t < STARTED; t++) pthread_join(threads[t], NULL);
#endif
    printf("%ld\n", table[1] + sums[1]);
}
