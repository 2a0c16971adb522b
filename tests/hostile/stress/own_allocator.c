/* A program with an allocator inside, whose mmap, under the allocator's lock, is what the policy places: what the library
   needs for a phase must not allocate there. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK = 4 << 20 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *next;
static size_t left;

__attribute__((noinline)) static char *map_chunk(size_t bytes) {
    char *chunk = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __asm__ volatile("" ::"r"(chunk) : "memory");
    return chunk;
}

static void *take(size_t align, size_t bytes) {
    pthread_mutex_lock(&lock);
    bytes = (bytes + 31) & ~(size_t)15;
    if (left < bytes + align) {
        left = bytes + align > CHUNK ? bytes + align : CHUNK;
        next = map_chunk(left);
    }
    char *block = (char *)(((uintptr_t)next + 16 + align - 1) & ~(align - 1));
    ((size_t *)block)[-1] = bytes - 16;
    left -= (size_t)(block + bytes - next);
    next = block + bytes;
    pthread_mutex_unlock(&lock);
    return block;
}

void *malloc(size_t bytes) { return take(16, bytes); }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t bytes) { return memset(take(16, count * bytes), 0, count * bytes); }
void *realloc(void *old, size_t bytes) {
    char *block = take(16, bytes);
    size_t before = old ? ((size_t *)old)[-1] : 0;
    return old ? memcpy(block, old, before < bytes ? before : bytes) : block;
}
void *memalign(size_t align, size_t bytes) { return take(align < 16 ? 16 : align, bytes); }
void *aligned_alloc(size_t align, size_t bytes) { return memalign(align, bytes); }
int posix_memalign(void **block, size_t align, size_t bytes) {
    *block = memalign(align, bytes);
    return 0;
}

static void *work(void *unused) {
    (void)unused;
    for (int i = 0; i < 200; i++) {
        memset(malloc(100000), 1, 100000);
        usleep(1000);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 42;
}
