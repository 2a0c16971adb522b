/* Arrays and small objects that are allocated, touched and freed again and again, before and after phases begin; numa_maps
 * of the process says how each is placed. A line per moment:
 *   maps MOMENT ARRAY|SMALL POLICY N0=.. N1=.. again=..   (again: rounds in which the array was where it had been before)
 */
#define _GNU_SOURCE
#include <numamma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 1 << 20, ROUNDS = 8, ROWS = 2000, ROW = 100 };

__attribute__((noinline)) static void *array(size_t n) { void *p = malloc(n); __asm__ volatile(""); return p; }
__attribute__((noinline)) static void *zeroed(size_t n) { void *p = calloc(n, 1); __asm__ volatile(""); return p; }
__attribute__((noinline)) static void *row(size_t n) { void *p = malloc(n); __asm__ volatile("nop"); return p; }

/* The mapping that holds `address`: the last that begins at or before it. */
static void show(const char *moment, const char *what, unsigned long address, int again) {
    char line[1024], best[1024] = "";
    FILE *f = fopen("/proc/self/numa_maps", "r");
    while (f && fgets(line, sizeof line, f))
        if (strtoul(line, NULL, 16) <= address) strcpy(best, line);
    if (f) fclose(f);
    char policy[64] = "?";
    sscanf(best, "%*x %63s", policy);
    long on[2] = {0, 0};
    for (int node = 0; node < 2; node++) {
        char key[8];
        snprintf(key, sizeof key, " N%d=", node);
        char *found = strstr(best, key);
        if (found) on[node] = atol(found + strlen(key));
    }
    printf("maps %s %s %s N0=%ld N1=%ld again=%d\n", moment, what, policy, on[0], on[1], again);
}

static int damaged;

static void rounds(const char *moment) {
    char *before = NULL, *p = NULL;
    int again = 0;
    for (int i = 0; i < ROUNDS; i++) {
        p = array(SIZE);
        again += p == before;
        before = p;
        memset(p, i + 1, SIZE);
        if (i < ROUNDS - 1) free(p);
    }
    show(moment, "array", (unsigned long)p, again);
    free(p);
    for (int i = 0; i < ROUNDS; i++) {
        p = zeroed(SIZE);
        for (int b = 0; b < SIZE; b++) damaged |= p[b];
        memset(p, 1, SIZE);
        if (i < ROUNDS - 1) free(p);
    }
    show(moment, "zeroed", (unsigned long)p, 0);
    free(p);
    static char *rows[ROWS];
    for (int i = 0; i < ROUNDS; i++) {
        for (int r = 0; r < ROWS; r++) memset(rows[r] = row(ROW), i, ROW);
        if (i == ROUNDS - 1) show(moment, "row", (unsigned long)rows[ROWS / 2], 0);
        for (int r = 0; r < ROWS; r++) free(rows[r]);
    }
}

/* An array that is live when the phase begins, and whose pages move then. Until they have, a mapping beside it with the same
 * policy shares its line of numa_maps. */
static void across(const char *phase, const char *at_once) {
    char *live = array(SIZE);
    memset(live, 1, SIZE);
    numamma_phase(phase);
    rounds(at_once);
    usleep(1500000);
    show(phase, "moved", (unsigned long)live, 0);
    free(live);
    rounds(phase);
}

int main(void) {
    rounds("start");
    across("solve", "solve-begins");
    across("back", "back-begins");
    printf("damaged %d\n", damaged);
    return 0;
}
