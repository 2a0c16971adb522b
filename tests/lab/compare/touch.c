// One thread touches 64 MiB and stays a moment: on one node by first touch, as it is bound to one CPU before. Says which
// memory policy it was started with.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

char state[64 << 20];

int main(void) {
    char line[512];
    int interleaved = 0;
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    while (maps && fgets(line, sizeof line, maps)) interleaved |= strstr(line, " interleave:0-3 ") != NULL;
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    memset(state, 1, sizeof state);
    sleep(1); // longer than the pause between two counts of its pages, on a loaded machine, too
    puts(interleaved ? "interleaved" : "default");
    return state[12345] != 1;
}
