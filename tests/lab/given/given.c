/* given: where the pages of objects lie that main, a thread, a fork and several kinds of children allocate,
 * in a program whose OpenMP runtime may bind the main thread before main.
 *
 * stdout, for each object: who allocated it, its name, its memory policy in /proc/self/numa_maps, and N<node>=<pages>
 * for each node with pages. With the argument `child` only the global and the object of main are shown.
 * Environment: with BRIEF set there are no children. LATE is a library that is loaded in main (an OpenMP runtime that
 * the program is not linked to).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1 << 20, NODES = 64 };

extern char **environ;
static const char *self;

__attribute__((aligned(4096))) char grid[SIZE];
__attribute__((noinline)) char *by_malloc(size_t n) { char *p = malloc(n); __asm__ volatile(""); return p; }

/* Adds up the lines of numa_maps from the one that holds the beginning of the object to its end. A line may hold
 * neighbours of the same policy, too. */
static void show(const char *who, const char *name, char *object) {
    memset(object, 1, SIZE);
    uintptr_t from = (uintptr_t)object & ~4095UL, to = (uintptr_t)object + SIZE;
    long pages[NODES] = {0};
    char line[1024], policy[64], first[64] = "none";
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start;
        if (sscanf(line, "%lx %63s", &start, policy) != 2 || start >= to) continue;
        if (start <= from) memset(pages, 0, sizeof pages);
        strcpy(first, policy);
        for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
            int node;
            long count;
            if (sscanf(word, "N%d=%ld", &node, &count) == 2 && node < NODES) pages[node] += count;
        }
    }
    if (maps) fclose(maps);
    printf("%s %s %s", who, name, first);
    for (int n = 0; n < NODES; n++)
        if (pages[n]) printf(" N%d=%ld", n, pages[n]);
    printf("\n");
    fflush(stdout);
}

static void ended(const char *who, int status) {
    if (status) printf("%s failed: %d\n", who, status), exit(1);
}

static void spawn(char *who) {
    char *argv[] = {(char *)self, "child", who, NULL};
    pid_t pid;
    int status;
    ended(who, posix_spawn(&pid, self, NULL, NULL, argv, environ));
    waitpid(pid, &status, 0);
    ended(who, status);
}

static void *from_thread(void *unused) {
    show("thread", "heap", by_malloc(SIZE));
    pid_t pid = fork();
    int status;
    if (pid == 0) execl(self, self, "child", "thread-exec", (char *)NULL), _exit(127);
    waitpid(pid, &status, 0);
    ended("thread-exec", status);
    return unused;
}

int main(int argc, char **argv) {
    int child = argc > 1 && !strcmp(argv[1], "child");
    const char *who = child ? argv[2] : "main";
    self = argv[0];
    const char *late = getenv("LATE");
    if (late && !dlopen(late, RTLD_NOW)) return puts(dlerror()), 1;
#ifdef _OPENMP
    int team = 0;
    #pragma omp parallel reduction(+ : team)
    team++;
    if (team < 1) return 1;
#endif
    show(who, "grid", grid);
    show(who, "heap", by_malloc(SIZE));
    if (child) return 0;
#ifdef _OPENMP
    char *shared = NULL;
    #pragma omp parallel
    {
        #pragma omp single
        shared = by_malloc(SIZE);
    }
    show("team", "heap", shared);
#endif
    if (getenv("BRIEF")) return 0;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        show("fork", "heap", by_malloc(SIZE));
        spawn("fork-spawn");
        _exit(0);
    }
    waitpid(pid, &status, 0);
    ended("fork", status);
    char command[256];
    snprintf(command, sizeof command, "%s child system; true", self);
    ended("system", system(command));
    spawn("spawn");
    if ((pid = vfork()) == 0) execl(self, self, "child", "vfork", (char *)NULL), _exit(127);
    waitpid(pid, &status, 0);
    ended("vfork", status);
    pthread_t thread;
    pthread_create(&thread, NULL, from_thread, NULL);
    pthread_join(thread, NULL);
    execl(self, self, "child", "exec", (char *)NULL);
    return 1;
}
