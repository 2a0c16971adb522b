/* Has arrays and objects of many sizes, of which it frees every second one, of two threads in turn, writes how much of its
   memory would be in a core dump to the file argv[1], and aborts. In KiB: what areas that are dumped have in memory, and their
   size as far as they were ever written to. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ARRAYS = 48, OBJECTS = 40000 };
static const size_t sizes[] = {1 << 20, 300000, 2 << 20, 70000};
static void *arrays[2][ARRAYS], *objects[2][OBJECTS];

static void *work(void *arg) {
    long me = (long)arg;
    for (int i = 0; i < ARRAYS; i++) {
        arrays[me][i] = malloc(sizes[i % 4]);
        memset(arrays[me][i], i, sizes[i % 4]);
    }
    for (int i = 0; i < OBJECTS; i++) {
        objects[me][i] = malloc(16 + i % 500);
        memset(objects[me][i], i, 16 + i % 500);
    }
    for (int i = 0; i < ARRAYS; i += 2) free(arrays[me][i]);
    for (int i = 0; i < OBJECTS; i += 2) free(objects[me][i]);
    return 0;
}

int main(int argc, char **argv) {
    static char line[512];
    pthread_t t;
    /* Not side by side: what glibc gives back depends on their order. */
    for (long i = 0; i < 2; i++) pthread_create(&t, 0, work, (void *)i), pthread_join(t, 0);
    usleep(100000);
    /* Not flushed by abort, so by hand; the buffers are not of the heap. */
    FILE *f = fopen("/proc/self/smaps", "r"), *out = argc > 1 ? fopen(argv[1], "w") : 0;
    if (!f || !out) return 3;
    long size = 0, resident = 0, own = 0, all_size = 0, all_resident = 0;
    while (fgets(line, sizeof line, f)) {
        sscanf(line, "Size: %ld", &size);
        sscanf(line, "Rss: %ld", &resident);
        sscanf(line, "Anonymous: %ld", &own);
        if (strncmp(line, "VmFlags:", 8)) continue;
        /* As vma_dump_size() of the kernel: private memory that was written to is dumped as a whole, and shared. */
        int is_shared = strstr(line, " sh") && !strstr(line, " mr mw me ac");
        if (strstr(line, " dd") || !(own || is_shared)) continue;
        all_size += size, all_resident += resident;
    }
    fprintf(out, "%ld %ld\n", all_resident, all_size);
    fclose(out);
    puts("aborting");
    fflush(stdout);
    abort();
}
