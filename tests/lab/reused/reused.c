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

/* The mapping that holds `address`: the last that begins at or before it. Writes its policy and its pages by node. */
static void look(unsigned long address, char policy[64], long on[2]) {
    char line[1024], best[1024] = "";
    FILE *f = fopen("/proc/self/numa_maps", "r");
    while (f && fgets(line, sizeof line, f))
        if (strtoul(line, NULL, 16) <= address) strcpy(best, line);
    if (f) fclose(f);
    strcpy(policy, "?");
    sscanf(best, "%*x %63s", policy);
    on[0] = on[1] = 0;
    for (int node = 0; node < 2; node++) {
        char key[8];
        snprintf(key, sizeof key, " N%d=", node);
        char *found = strstr(best, key);
        if (found) on[node] = atol(found + strlen(key));
    }
}

static void show(const char *moment, const char *what, unsigned long address, int again) {
    char policy[64];
    long on[2];
    look(address, policy, on);
    printf("maps %s %s %s N0=%ld N1=%ld again=%d\n", moment, what, policy, on[0], on[1], again);
}

/* Pages move in the background, and a page that is moving is in no count: looks until all of `address` are there and
 * `percent` of them are on node 1, for a minute at most. Whether they are is judged by what `show` prints afterwards. */
static void wait_until_moved(unsigned long address, long percent) {
    for (int tenths = 0; tenths < 600; tenths++) {
        char policy[64];
        long on[2];
        usleep(100000);
        look(address, policy, on);
        long all = on[0] + on[1];
        if (all >= SIZE / 4096 && labs(on[1] * 100 - percent * all) <= 2 * all) return;
    }
    printf("%lx is not where it should be:\n", address);
    char line[1024];
    FILE *f = fopen("/proc/self/numa_maps", "r");
    while (f && fgets(line, sizeof line, f)) fputs(line, stdout);
    if (f) fclose(f);
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
static void across(const char *phase, const char *at_once, long percent_on_node_1) {
    char *live = array(SIZE);
    memset(live, 1, SIZE);
    numamma_phase(phase);
    rounds(at_once);
    wait_until_moved((unsigned long)live, percent_on_node_1);
    /* It still holds what was written, and who reads a page that is moving waits until it has. */
    for (int b = 0; b < SIZE; b++) damaged |= live[b] != 1;
    show(phase, "moved", (unsigned long)live, 0);
    free(live);
    rounds(phase);
}

/* $NODES: the nodes over which the policy interleaves, which are those that the process was given. */
int main(void) {
    const char *nodes = getenv("NODES");
    rounds("start");
    across("solve", "solve-begins", 100);
    across("back", "back-begins", nodes && !strcmp(nodes, "1") ? 100 : 50);
    printf("damaged %d\n", damaged);
    return 0;
}
