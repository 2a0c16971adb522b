/* Four processes that share memory, each of which works on its own quarter.
 *
 * quarters filled SECONDS   the parent writes all of an inherited MAP_SHARED | MAP_ANONYMOUS before it forks
 * quarters own SECONDS      nobody does: each process touches its own quarter first
 * quarters named SECONDS    the parent writes all of a memfd, which each process maps anew, at another address
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 4
#define COUNT (4UL << 20)

static double cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline)) static double *shared(int fd) {
    int flags = MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0);
    double *data = mmap(NULL, COUNT * sizeof(double), PROT_READ | PROT_WRITE, flags, fd, 0);
    if (data == MAP_FAILED)
        exit(2);
    return data;
}

static void sweep(double *data, size_t first, size_t end) {
    for (size_t i = first; i < end; i++)
        data[i] = data[i] * 0.5 + 1;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int fd = -1;
    if (strcmp(argv[1], "named") == 0 && ((fd = memfd_create("quarters", 0)) < 0 || ftruncate(fd, COUNT * sizeof(double)) != 0))
        return 2;
    double *data = shared(fd), seconds = atof(argv[2]);
    if (strcmp(argv[1], "own") != 0)
        for (size_t i = 0; i < COUNT; i++)
            data[i] = 1;
    for (int process = 0; process < PROCESSES; process++)
        if (fork() == 0) {
            if (fd >= 0)
                data = shared(fd);
            while (cpu() < seconds)
                sweep(data, COUNT / PROCESSES * process, COUNT / PROCESSES * (process + 1));
            _exit(0);
        }
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}
