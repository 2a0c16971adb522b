/* A number of /proc/self/status, in KiB: "VmRSS:", "VmHWM:", "VmSize:" of proc_pid_status(5); -1 if it is not there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long status(const char *key) {
    char line[256];
    long value = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key))) value = atol(line + strlen(key));
    if (f) fclose(f);
    return value;
}
