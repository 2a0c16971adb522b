/* Opens a library, allocates in it and closes it, again and again.   cycles LIBRARY CYCLES [LIBRARY-THAT-STAYS]...
 * Prints the CPU time of a cycle and by how much resident memory grew after the first tenth of them. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*s %ld", &pages) != 1) return -1;
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static double seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static int damaged;

static void cycle(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    char *(*make)(size_t) = library ? (char *(*)(size_t))dlsym(library, "plugin_make") : NULL;
    if (!make) { fprintf(stderr, "%s\n", dlerror()); exit(99); }
    char *block = make(20000);
    damaged += block[0] != 9 || block[19999] != 9;
    free(block);
    dlclose(library);
}

int main(int argc, char **argv) {
    int cycles = argc > 2 ? atoi(argv[2]) : 0;
    for (int i = 3; i < argc; i++)
        if (!dlopen(argv[i], RTLD_LAZY)) { fprintf(stderr, "%s\n", dlerror()); return 99; }
    for (int i = 0; i < cycles / 10; i++) cycle(argv[1]);
    long before = resident();
    double start = seconds();
    for (int i = cycles / 10; i < cycles; i++) cycle(argv[1]);
    double each = (seconds() - start) / (cycles - cycles / 10);
    printf("damaged %d us %.1f grown %ld\n", damaged, each * 1e6, resident() - before);
    return 0;
}
