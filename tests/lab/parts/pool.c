/* One malloc that the program divides itself into three arrays; compiled without debug information and stripped, so
 * that no symbol and no type says where they begin.
 *
 * Truth, in order: `field`, 6 MiB, sliced over the threads; `table`, 5 MiB, read by all at random; `back`, 7 MiB,
 *                  sliced over the threads in the reverse order.
 * The main thread initialises everything, so first touch puts every page on its node.
 *
 * pool [threads [iterations [maps]]]        maps: prints where its pages are, by the kernel (numa_maps)
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1024L * 1024)
#define FIELD (6 * MIB / 8)
#define TABLE (5 * MIB / 8)
#define BACK (7 * MIB / 8)
/* An emulator takes as long for an entry of `table`, which costs a division, as for some tens of the other arrays. */
#define LOOK_UPS (TABLE / 32)

static long threads = 4, iterations = 100;
static unsigned long *field, *table, *back;

/* One function for each array: under an emulator samples fall on the ends of loops only. */
static __attribute__((noinline)) void sweep(unsigned long *array, long first, long end) {
    for (long i = first; i < end; i++) array[i] += 3;
}

static __attribute__((noinline)) void sweep_back(unsigned long *array, long first, long end) {
    for (long i = first; i < end; i++) array[i] += 5;
}

static __attribute__((noinline)) unsigned long look_up(unsigned long *state) {
    unsigned long sum = 0, at = *state;
    for (long i = 0; i < LOOK_UPS / threads; i++) {
        /* xorshift64 (Marsaglia 2003) */
        at ^= at << 13, at ^= at >> 7, at ^= at << 17;
        sum += table[at % TABLE];
    }
    *state = at;
    return sum;
}

/* The work of thread *rank, which is replaced by the sum of what it read. */
static void *work(void *rank) {
    unsigned long *own = rank, sum = 0, state = 88172645463325252ul + *own;
    long t = (long)*own, u = threads - 1 - t;
    for (long it = 0; it < iterations; it++) {
        sweep(field, FIELD * t / threads, FIELD * (t + 1) / threads);
        sum += look_up(&state);
        sweep_back(back, BACK * u / threads, BACK * (u + 1) / threads);
    }
    *own = sum;
    return NULL;
}

/* The rows of numa_maps, and the address and size of each array. */
static void show(void) {
    char line[4096];
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    while (maps && fgets(line, sizeof line, maps)) printf("maps %s", line);
    if (maps) fclose(maps);
    printf("array field %lx %ld\n", (unsigned long)field, FIELD * 8);
    printf("array table %lx %ld\n", (unsigned long)table, TABLE * 8);
    printf("array back %lx %ld\n", (unsigned long)back, BACK * 8);
}

int main(int argc, char **argv) {
    if (argc > 1) threads = atol(argv[1]);
    if (argc > 2) iterations = atol(argv[2]);
    field = malloc((FIELD + TABLE + BACK) * sizeof *field);
    table = field + FIELD, back = table + TABLE;
    memset(field, 0, (FIELD + TABLE + BACK) * sizeof *field);
    for (long i = 0; i < TABLE; i++) table[i] = (unsigned long)i % 1000;
    pthread_t *team = malloc((size_t)threads * sizeof *team);
    unsigned long *sums = malloc((size_t)threads * sizeof *sums), sum = 0;
    for (long t = 0; t < threads; t++) sums[t] = (unsigned long)t, pthread_create(&team[t], NULL, work, &sums[t]);
    for (long t = 0; t < threads; t++) pthread_join(team[t], NULL), sum += sums[t];
    for (long i = 0; i < FIELD; i += 7) sum += field[i];
    for (long i = 0; i < BACK; i += 7) sum += back[i];
    printf("sum %lu\n", sum);
    if (argc > 3) show();
    free(field), free(team), free(sums);
    return 0;
}
