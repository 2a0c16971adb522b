/* Placed objects of every kind while phases change every few milliseconds: threads allocate, write, reallocate, unmap and free,
 * a child is forked now and then, a library comes and goes. Every byte is checked. Usage: phases SECONDS [PLUGIN] */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <numamma.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define THREADS 4
#define SLOTS 24

char in_bss[300 * PAGE];
static volatile int stop;
static const char *plugin;
static int bad;

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "failed: %s, line %d\n", #x, __LINE__); __atomic_store_n(&bad, 1, __ATOMIC_RELAXED); } } while (0)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* One word in each page and one at the end say whose it is. */
static void fill(char *p, size_t size, unsigned mark) {
    for (size_t i = 0; i + 4 <= size; i += PAGE) memcpy(p + i, &mark, 4);
    if (size >= 4) memcpy(p + size - 4, &mark, 4);
}

static int holds(const char *p, size_t size, size_t old, unsigned mark) {
    unsigned found;
    size_t known = size < old ? size : old;
    for (size_t i = 0; i + 8 <= known; i += PAGE) {
        memcpy(&found, p + i, 4);
        if (found != mark) return 0;
    }
    return 1;
}

__attribute__((noinline)) char *by_malloc(size_t size) { char *p = malloc(size); __asm__("" : "+r"(p)); return p; }
__attribute__((noinline)) char *by_realloc(char *p, size_t size) { p = realloc(p, size); __asm__("" : "+r"(p)); return p; }
__attribute__((noinline)) char *by_small(size_t size) { char *p = malloc(size); __asm__("" : "+r"(p)); return p; }
__attribute__((noinline)) char *by_mmap(size_t size) {
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__("" : "+r"(p));
    return p;
}

struct slot {
    char *p;
    size_t size;
    unsigned mark;
    int mapped;
};

static unsigned next(unsigned *seed) { return *seed = *seed * 1664525u + 1013904223u; }

static size_t some_size(unsigned *seed) {
    unsigned r = next(seed) >> 8;
    return r % 8 == 0 ? 16 + r % 2000 : PAGE + r % (400 * PAGE);
}

static void new_one(struct slot *s, unsigned *seed) {
    s->size = some_size(seed);
    s->mark = next(seed);
    s->mapped = next(seed) >> 28 > 10;
    if (s->mapped) {
        s->size = (s->size + PAGE - 1) / PAGE * PAGE;
        s->p = by_mmap(s->size);
    } else {
        s->p = s->size < PAGE ? by_small(s->size) : by_malloc(s->size);
    }
    fill(s->p, s->size, s->mark);
}

static void end_one(struct slot *s, unsigned *seed) {
    if (!s->mapped) {
        free(s->p);
    } else if (next(seed) >> 31 && s->size >= 4 * PAGE) { /* in three pieces, the middle first */
        CHECK(munmap(s->p + PAGE, s->size - 3 * PAGE) == 0);
        CHECK(munmap(s->p, PAGE) == 0);
        CHECK(munmap(s->p + s->size - 2 * PAGE, 2 * PAGE) == 0);
    } else {
        CHECK(mmap(s->p, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == s->p);
        CHECK(s->p[0] == 0);
        CHECK(munmap(s->p, s->size) == 0);
    }
    s->p = NULL;
}

static void *work(void *arg) {
    unsigned seed = (unsigned)(size_t)arg * 7919 + 1;
    struct slot slots[SLOTS] = {{0}};
    while (!stop) {
        struct slot *s = &slots[(next(&seed) >> 16) % SLOTS];
        if (!s->p) {
            new_one(s, &seed);
            continue;
        }
        CHECK(holds(s->p, s->size, s->size, s->mark));
        if (next(&seed) >> 30 == 0) {
            size_t size = (some_size(&seed) + PAGE) / PAGE * PAGE, old = s->size;
            s->p = s->mapped ? mremap(s->p, old, size, MREMAP_MAYMOVE) : by_realloc(s->p, size);
            CHECK(s->p != MAP_FAILED && s->p);
            CHECK(holds(s->p, size, old < size ? old : size, s->mark));
            s->size = size;
            fill(s->p, size, s->mark);
        } else {
            end_one(s, &seed);
        }
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].p) {
            CHECK(holds(slots[i].p, slots[i].size, slots[i].size, slots[i].mark));
            end_one(&slots[i], &seed);
        }
    return NULL;
}

/* A child must not wait for its parent's mover, and has all contents. */
static void child(char *heap, char *map, size_t size) {
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        numamma_phase("b");
        int good = holds(heap, size, size, 77) && holds(map, size, size, 78) && in_bss[PAGE] == 5;
        free(heap);
        good = good && munmap(map, size) == 0;
        char *mine = by_malloc(size);
        fill(mine, size, 79);
        numamma_phase("a");
        good = good && holds(mine, size, size, 79);
        free(mine);
        _exit(good ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
    pid = vfork(); /* and one that shares memory with the mover */
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(9);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv) {
    double end = now() + (argc > 1 ? atof(argv[1]) : 1);
    plugin = argc > 2 ? argv[2] : NULL;
    memset(in_bss, 5, sizeof in_bss);
    size_t size = 600 * PAGE;
    char *heap = by_malloc(size), *map = by_mmap(size);
    fill(heap, size, 77);
    fill(map, size, 78);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    const char *names[] = {"a", "b", "c"};
    for (unsigned n = 0; now() < end; n++) {
        numamma_phase(names[n % 3]);
        usleep(3000);
        if (n % 16 == 5) child(heap, map, size);
        if (plugin && n % 4 == 3) {
            void *lib = dlopen(plugin, RTLD_NOW);
            CHECK(lib);
            char *data = dlsym(lib, "plugin_state");
            CHECK(data);
            data[PAGE] = 9;
            numamma_phase(names[(n + 1) % 3]);
            CHECK(data[PAGE] == 9);
            dlclose(lib);
        }
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK(holds(heap, size, size, 77) && holds(map, size, size, 78));
    for (size_t i = 0; i < sizeof in_bss; i++) CHECK(in_bss[i] == 5);
    usleep(30000);
    puts(bad ? "bad" : "good");
    return bad;
}
