/* Serves the faults of arrays of its own (userfaultfd, missing pages): a page holds what the serving thread gave at
   its first touch. Arrays come from malloc, posix_memalign and mmap; those of the heap, and with an argument all, give their
   pages up before they are registered. Later they are given up and served again; then the array is unregistered, freed
   and allocated again. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 600, ROUNDS = 8, READERS = 3, PAUSE_US = 10000 };
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

static int fd, stop[2];
static char *first;
static long damaged, failed, served;
static unsigned round_now;

static char content(long page, size_t i) { return round_now * 31 + page * 7 + i; }

static void *serve(void *arg) {
    static char page[PAGE] __attribute__((aligned(PAGE)));
    for (;;) {
        struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = stop[0], .events = POLLIN}};
        if (poll(p, 2, -1) < 0) continue;
        if (p[1].revents) return arg;
        struct uffd_msg m;
        if (read(fd, &m, sizeof m) != sizeof m || m.event != UFFD_EVENT_PAGEFAULT) continue;
        uintptr_t at = m.arg.pagefault.address & ~(uintptr_t)(PAGE - 1);
        long n = (at - (uintptr_t)first) / PAGE;
        for (size_t i = 0; i < PAGE; i++) page[i] = content(n, i);
        struct uffdio_copy copy = {.dst = at, .src = (uintptr_t)page, .len = PAGE};
        if (ioctl(fd, UFFDIO_COPY, &copy) && errno != EEXIST) failed++;
        else if (copy.copy == PAGE) served++;
    }
}

static void *reader(void *arg) {
    long bad = 0;
    for (long i = 0; i < PAGES; i++) {
        long page = (i * 37 + (long)arg * 200) % PAGES;
        for (size_t k = 0; k < PAGE; k += 61) bad += first[page * PAGE + k] != content(page, k);
    }
    __atomic_fetch_add(&damaged, bad, __ATOMIC_RELAXED);
    return 0;
}

static void read_all(void) {
    pthread_t t[READERS];
    for (long i = 0; i < READERS; i++) pthread_create(&t[i], 0, reader, (void *)i);
    for (int i = 0; i < READERS; i++) pthread_join(t[i], 0);
}

static void *array(unsigned how, size_t bytes) {
    void *p = 0;
    if (how == 0) return malloc(bytes);
    if (how == 1) return posix_memalign(&p, 1 << 21, bytes) ? 0 : p;
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void release(unsigned how, void *p, size_t bytes) {
    if (how == 2) munmap(p, bytes);
    else free(p);
}

int main(int argc, char **argv) {
    (void)argv;
    fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) {
        if (errno != ENOSYS && errno != EPERM && errno != EINVAL) return perror("userfaultfd"), 3;
        return puts("the kernel refuses userfaultfd"), 0;
    }
    pthread_t server;
    if (pipe(stop) || pthread_create(&server, 0, serve, 0)) return 3;
    for (round_now = 0; round_now < ROUNDS * 3; round_now++) {
        unsigned how = round_now % 3;
        size_t bytes = (PAGES + 1) * PAGE, range = (size_t)PAGES * PAGE;
        char *p = array(how, bytes);
        first = (char *)(((uintptr_t)p + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
        if ((argc > 1 || how != 2) && madvise(first, range, MADV_DONTNEED)) return perror("madvise"), 3;
        struct uffdio_register reg = {.range = {(uintptr_t)first, range}, .mode = UFFDIO_REGISTER_MODE_MISSING};
        if (ioctl(fd, UFFDIO_REGISTER, &reg)) return perror("register"), 3;
        read_all();
        usleep(PAUSE_US);
        /* Given up, and served again with the same contents. */
        if (madvise(first, range, MADV_DONTNEED)) return perror("madvise"), 3;
        read_all();
        if (ioctl(fd, UFFDIO_UNREGISTER, &reg.range)) return perror("unregister"), 3;
        for (long n = 0; n < PAGES; n++) damaged += first[n * PAGE + 9] != content(n, 9);
        release(how, p, bytes);
        /* The next array is nobody's to serve. */
        char *next = how == 2 ? array(2, bytes) : calloc(bytes, 1);
        for (size_t i = 0; i < bytes; i += 512) damaged += next[i] != 0;
        memset(next, 3, bytes);
        release(how, next, bytes);
    }
    if (write(stop[1], "", 1) != 1) return 3;
    pthread_join(server, 0);
    printf("pages served %ld, failed %ld, damaged %ld\n", served, failed, damaged);
    return 0;
}
