/* Counts its threads as the kernel does: at the start, after the time of a phase, and, with an argument, once it has an
   array that the policy places and the kernel interleaves its pages, or after five seconds. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Since glibc 2.32: whether there has never been another thread, so that locks are not needed. */
extern char __libc_single_threaded __attribute__((weak));

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *task; tasks && (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return count;
}

static int is_interleaved(void) {
    char line[4096];
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    int found = 0;
    while (maps && !found && fgets(line, sizeof line, maps))
        found = strstr(line, " interleave") != NULL;
    if (maps)
        fclose(maps);
    return found;
}

__attribute__((noinline)) static char *grab(size_t bytes) {
    char *array = malloc(bytes);
    if (!array)
        abort();
    memset(array, 1, bytes);
    return array;
}

int main(int argc, char **argv) {
    (void)argv;
    int first = threads();
    usleep(100 * 1000);
    printf("%d %d %d", first, threads(), !&__libc_single_threaded || __libc_single_threaded);
    if (argc > 1) {
        char *array = grab(1 << 20);
        for (int wait = 0; wait < 500 && !is_interleaved(); wait++)
            usleep(10 * 1000);
        printf(" %d", threads());
        free(array);
    }
    puts("");
}
