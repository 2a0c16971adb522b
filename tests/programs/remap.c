/* A mesh code that maps, touches and unmaps its work arrays in every step: some 300,000 page faults a second of CPU
 * time, of which none is of memory that lives longer than the step.
 *
 * Truth: `field` (32 MiB) is touched first by main, and each thread uses its own half: the other threads' accesses are
 * to pages of main. `late` (32 MiB) is touched first in the middle of the run, in order, each half by the thread that
 * uses it: no access is to a page of another thread. The work arrays are used by the thread that maps them.
 * Usage: remap [STEPS] */
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FIELD = 32 << 20, WORK = 1 << 20, PAGE = 4096, SWEEP = 32 << 10, SWEEPS = 8 };

static double *field, *late;

static void fill(double *from, size_t doubles, double value) {
    for (size_t i = 0; i < doubles; i++) from[i] = value;
}

static double *map_work(void) {
    double *work = mmap(NULL, WORK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (work == MAP_FAILED) exit(1);
    madvise(work, WORK, MADV_NOHUGEPAGE);
    return work;
}

static void step(double *half, size_t doubles, size_t n) {
    double *work = map_work();
    for (size_t at = 0; at < WORK / sizeof *work; at += PAGE / sizeof *work) work[at] = n;
    size_t first = n * SWEEP % (doubles - SWEEP);
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (size_t i = 0; i < SWEEP; i++) half[first + i] = half[first + i] * 0.5 + work[i];
    munmap(work, WORK);
}

int main(int argc, char **argv) {
    size_t steps = argc > 1 ? strtoul(argv[1], NULL, 10) : 2000, doubles = FIELD / sizeof *field;
    field = aligned_alloc(PAGE, FIELD);
    late = aligned_alloc(PAGE, FIELD);
    madvise(field, FIELD, MADV_NOHUGEPAGE);
    madvise(late, FIELD, MADV_NOHUGEPAGE);
    fill(field, doubles, 1);
#pragma omp parallel
    {
        size_t threads = omp_get_num_threads(), part = doubles / threads, own = part * omp_get_thread_num();
        for (size_t n = 0; n < steps; n++) {
            step(field + own, part, n);
            if (n == steps / 2) fill(late + own, part, 1);
            if (n > steps / 2) step(late + own, part, n);
        }
    }
    printf("%g %g\n", field[12345], late[12345]);
    return 0;
}
