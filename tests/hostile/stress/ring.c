/* Buffers of io_uring, by raw system calls: registered ones, of which one stays registered all the time, and others;
   read and written by the kernel, by a worker thread of the kernel, and by the thread that polls; resized and freed
   when the request has completed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ENTRIES = 64, BUFFERS = 20, ROUNDS = 24, KEPT = 1 << 20, PAUSE_US = 4000 };

struct ring {
    int fd;
    struct io_uring_params params;
    char *sq, *cq;
    struct io_uring_sqe *entries;
};

static long damaged, failed;

static unsigned *at(char *base, unsigned offset) { return (unsigned *)(base + offset); }

static void *map(int fd, size_t bytes, off_t what) {
    void *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);
    if (p == MAP_FAILED) perror("mmap"), exit(3);
    return p;
}

/* Whether the kernel gives one. */
static int set_up(struct ring *r, unsigned flags) {
    memset(r, 0, sizeof *r);
    r->params.flags = flags;
    r->params.sq_thread_idle = 50;
    r->fd = syscall(SYS_io_uring_setup, ENTRIES, &r->params);
    if (r->fd < 0) return 0;
    struct io_uring_params *p = &r->params;
    r->sq = map(r->fd, p->sq_off.array + p->sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    r->cq = map(r->fd, p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    r->entries = map(r->fd, p->sq_entries * sizeof *r->entries, IORING_OFF_SQES);
    return 1;
}

static void push(struct ring *r, int op, int fd, void *p, size_t bytes, off_t offset, int index, int flags) {
    unsigned tail = *at(r->sq, r->params.sq_off.tail), slot = tail & *at(r->sq, r->params.sq_off.ring_mask);
    struct io_uring_sqe *e = &r->entries[slot];
    memset(e, 0, sizeof *e);
    e->opcode = op, e->fd = fd, e->addr = (unsigned long)p, e->len = bytes, e->off = offset, e->flags = flags;
    e->user_data = bytes;
    if (index >= 0) e->buf_index = index;
    at(r->sq, r->params.sq_off.array)[slot] = slot;
    __atomic_store_n(at(r->sq, r->params.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
}

/* Submits what was pushed; waits for `wait` completions. */
static void enter(struct ring *r, unsigned submitted, unsigned wait) {
    unsigned flags = wait ? IORING_ENTER_GETEVENTS : 0;
    if (r->params.flags & IORING_SETUP_SQPOLL) {
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        if (*at(r->sq, r->params.sq_off.flags) & IORING_SQ_NEED_WAKEUP) flags |= IORING_ENTER_SQ_WAKEUP;
    }
    while (syscall(SYS_io_uring_enter, r->fd, submitted, wait, flags, NULL, 0) < 0)
        if (errno != EINTR) perror("io_uring_enter"), exit(3);
    struct io_uring_cqe *done = (struct io_uring_cqe *)(r->cq + r->params.cq_off.cqes);
    for (unsigned seen = 0; seen < wait;) {
        unsigned head = *at(r->cq, r->params.cq_off.head);
        if (head == __atomic_load_n(at(r->cq, r->params.cq_off.tail), __ATOMIC_ACQUIRE)) continue;
        struct io_uring_cqe *c = &done[head & *at(r->cq, r->params.cq_off.ring_mask)];
        failed += c->res != (long)c->user_data;
        __atomic_store_n(at(r->cq, r->params.cq_off.head), head + 1, __ATOMIC_RELEASE);
        seen++;
    }
}

static int register_buffers(struct ring *r, int what, struct iovec *v, unsigned n) {
    return syscall(SYS_io_uring_register, r->fd, what, v, n);
}

static void fill(char *p, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++) p[i] = seed + i * 7 + (i >> 8);
}

static void check(const char *p, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++) damaged += p[i] != (char)(seed + i * 7 + (i >> 8));
}

static void *block(int i, size_t n) {
    void *p = 0;
    switch (i % 4) {
    case 0: return malloc(n);
    case 1: return posix_memalign(&p, 4096, n) ? 0 : p;
    case 2: return calloc(n, 1);
    default: return realloc(malloc(n / 3 + 1), n);
    }
}

static off_t place(int i) { return (off_t)i << 20; }

/* Registered buffers: written to the file, overwritten, read back. */
static void registered(struct ring *r, int file, char *kept, unsigned round, int flags) {
    static const size_t sizes[] = {100, 512, 4096, 5000, 16384, 65536, 200000, 400000};
    struct iovec v[BUFFERS + 1] = {{kept, KEPT}};
    for (int i = 1; i <= BUFFERS; i++) {
        size_t n = sizes[(i + round) % 8];
        v[i] = (struct iovec){block(i, n), n};
        fill(v[i].iov_base, n, round + i);
    }
    if (register_buffers(r, IORING_REGISTER_BUFFERS, v, BUFFERS + 1)) perror("register"), exit(3);
    for (int i = 0; i <= BUFFERS; i++) {
        push(r, IORING_OP_WRITE_FIXED, file, v[i].iov_base, v[i].iov_len, place(i), i, flags);
    }
    enter(r, BUFFERS + 1, BUFFERS + 1);
    for (int i = 1; i <= BUFFERS; i++) memset(v[i].iov_base, 0x5a, v[i].iov_len);
    usleep(PAUSE_US);
    for (int i = 0; i <= BUFFERS; i++) {
        push(r, IORING_OP_READ_FIXED, file, v[i].iov_base, v[i].iov_len, place(i), i, flags);
    }
    enter(r, BUFFERS + 1, BUFFERS + 1);
    for (int i = 1; i <= BUFFERS; i++) check(v[i].iov_base, v[i].iov_len, round + i);
    if (register_buffers(r, IORING_UNREGISTER_BUFFERS, 0, 0)) perror("unregister"), exit(3);
    /* At once larger, smaller or gone. */
    for (int i = 1; i <= BUFFERS; i++) {
        size_t n = v[i].iov_len, then = i % 3 == 0 ? n * 2 : n / 2 + 1;
        if (i % 3 != 2) {
            v[i].iov_base = realloc(v[i].iov_base, then);
            check(v[i].iov_base, n < then ? n : then, round + i);
        }
        free(v[i].iov_base);
    }
}

/* Not registered: a read that waits for a pipe, into a block that is freed or resized when it is done. */
static void waiting(struct ring *r, unsigned round, int flags) {
    enum { N = 30000 };
    int ends[2];
    if (pipe(ends)) exit(3);
    char *from = malloc(N), *to = block(round, N);
    fill(from, N, round);
    push(r, IORING_OP_READ, ends[0], to, N, 0, -1, flags);
    enter(r, 1, 0);
    usleep(PAUSE_US);
    if (write(ends[1], from, N) != N) exit(3);
    enter(r, 0, 1);
    check(to, N, round);
    to = realloc(to, round % 2 ? 3 * N : N / 3);
    check(to, N / 3, round);
    free(to), free(from), close(ends[0]), close(ends[1]);
}

int main(void) {
    struct ring own, polled;
    if (!set_up(&own, 0)) {
        if (errno != ENOSYS && errno != EPERM) return perror("io_uring_setup"), 3;
        return puts("the kernel refuses io_uring"), 0;
    }
    int has_poll = set_up(&polled, IORING_SETUP_SQPOLL);
    int file = open(".", O_TMPFILE | O_RDWR, 0600);
    char *kept = malloc(KEPT), *seen = malloc(KEPT);
    struct iovec always = {kept, KEPT};
    struct ring all_the_time;
    if (file < 0 || !kept || !seen || !set_up(&all_the_time, 0)) return 3;
    memset(kept, 1, KEPT);
    if (register_buffers(&all_the_time, IORING_REGISTER_BUFFERS, &always, 1)) return perror("register"), 3;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct ring *r = has_poll && round % 3 == 2 ? &polled : &own;
        int flags = round % 3 == 1 ? IOSQE_ASYNC : 0;
        registered(r, file, kept, round, flags);
        waiting(r, round, flags);
        /* What the program wrote to the pages since they were registered is what the kernel sees there, and back. */
        fill(kept, KEPT, round);
        push(&all_the_time, IORING_OP_WRITE_FIXED, file, kept, KEPT, place(BUFFERS + 1), 0, flags);
        enter(&all_the_time, 1, 1);
        if (pread(file, seen, KEPT, place(BUFFERS + 1)) != KEPT) return 3;
        check(seen, KEPT, round);
        memset(kept, 0, KEPT);
        push(&all_the_time, IORING_OP_READ_FIXED, file, kept, KEPT, place(BUFFERS + 1), 0, flags);
        enter(&all_the_time, 1, 1);
        check(kept, KEPT, round);
    }
    printf("%d rounds, polled %d, failed %ld, damaged %ld\n", ROUNDS, has_poll, failed, damaged);
    return 0;
}
