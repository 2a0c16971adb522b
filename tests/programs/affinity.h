/* The nodes whose CPUs the calling thread may use, as text: "2", or "0 1 2 3". */
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

static inline void write_nodes(char *text, size_t size) {
    cpu_set_t set;
    size_t at = 0;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    text[0] = 0;
    for (int node = 0; node < 64; node++) {
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            char path[64];
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/node%d", cpu, node);
            if (!CPU_ISSET(cpu, &set) || access(path, F_OK)) continue;
            at += (size_t)snprintf(text + at, at < size ? size - at : 0, "%s%d", at ? " " : "", node);
            break;
        }
    }
}
