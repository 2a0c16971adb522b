/* Counts its threads as the kernel does: at the start, after the time of a phase, and, with an argument, once it has an
   array that the policy places. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *task; tasks && (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return count;
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
    printf("%d %d", first, threads());
    if (argc > 1) {
        char *array = grab(1 << 20);
        int most = threads();
        for (int wait = 0; wait < 500 && most == 1; wait++) {
            usleep(10 * 1000);
            most = threads();
        }
        printf(" %d", most);
        free(array);
    }
    puts("");
}
