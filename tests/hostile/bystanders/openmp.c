/* C and C++: a parallel reduction, tasks and a nested region. */
#include <stdio.h>
#include <stdlib.h>

static long fibonacci(int n) {
    long a, b;
    if (n < 2) return n;
#pragma omp task shared(a) if (n > 12)
    a = fibonacci(n - 1);
#pragma omp task shared(b) if (n > 12)
    b = fibonacci(n - 2);
#pragma omp taskwait
    return a + b;
}

int main(void) {
    enum { N = 1 << 20 };
    double *x = (double *)malloc(N * sizeof *x), sum = 0;
    long result = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(4)
    for (int i = 0; i < N; i++) {
        char *p = (char *)malloc(16 + i % 100);
        p[0] = (char)(i % 7);
        x[i] = p[0];
        sum += x[i];
        free(p);
    }
#pragma omp parallel num_threads(4)
#pragma omp single
    result = fibonacci(22);
    printf("%.0f %ld\n", sum, result);
    free(x);
    return 3;
}
