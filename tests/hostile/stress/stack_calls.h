/* The calls of stack_use.c, at least one of each function that a preload exports. The text of a call is kept: the test
 * sees there which functions are measured. */
#define CALL(name, body) \
    static const char name##_text[] = #body; \
    __attribute__((noinline)) static void name(void) { body; __asm__ volatile("" ::: "memory"); }

static const char *library;
static char *block[16];
static void *handle;
static int segment, failed;

static void touch(char *p, size_t n) { for (size_t i = 0; i < n; i += 4096) p[i] = 1; }

/* Functions of newer or older C libraries, and those of the preloads alone. */
void cfree(void *) __attribute__((weak));
void free_sized(void *, size_t) __attribute__((weak));
void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));
void numamma_phase(const char *) __attribute__((weak));
void numamma_profile(int) __attribute__((weak));
void __libc_free(void *);
void *__libc_realloc(void *, size_t);

CALL(malloc_small, block[0] = malloc(100))
CALL(malloc_page, block[1] = malloc(5000))
CALL(malloc_large, block[2] = malloc(1 << 20))
CALL(malloc_huge, block[3] = malloc(5 << 20))
CALL(calloc_large, block[4] = calloc(1, 200000))
CALL(memalign_large, block[5] = memalign(8192, 100000))
CALL(align_posix, failed = posix_memalign((void **)&block[10], 4096, 70000))
CALL(align_c11, block[11] = aligned_alloc(256, 81920))
CALL(align_page, block[12] = valloc(90000))
CALL(align_whole_pages, block[13] = pvalloc(91000))
CALL(array_grows, block[11] = reallocarray(block[11], 3, 81920))
CALL(libc_grows, block[12] = __libc_realloc(block[12], 240000))
CALL(free_libc, __libc_free(block[10]))
CALL(free_by_size, (free_sized ? free_sized(block[11], 245760) : free(block[11])))
CALL(free_old, (cfree ? cfree(block[12]) : free(block[12])))
CALL(align_again, block[13] = realloc(block[13], 400000); block[12] = aligned_alloc(64, 64000))
CALL(free_aligned, (free_aligned_sized ? free_aligned_sized(block[12], 64, 64000) : free(block[12])))
CALL(free_pages, free(block[13]))
CALL(realloc_new, block[6] = realloc(NULL, 30000))
CALL(realloc_grows, block[6] = realloc(block[6], 300000))
CALL(realloc_small, block[0] = realloc(block[0], 2000))
CALL(usable_size, malloc_usable_size(block[2]))
CALL(free_small, free(block[0]))
CALL(free_page, free(block[1]))
CALL(free_large, free(block[2]))
CALL(free_huge, free(block[3]))
CALL(free_calloc, free(block[4]))
CALL(free_memalign, free(block[5]))
CALL(free_realloc, free(block[6]))
CALL(map, block[7] = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
CALL(map_shared, block[8] = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
CALL(map_64, block[14] = mmap64(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
CALL(map_over, mmap(block[14], 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0))
CALL(protect, failed = mprotect(block[14], 8192, PROT_READ))
static void *page_in(char *p) { return p + 4096 - (uintptr_t)p % 4096; }
CALL(protect_key, failed = pkey_mprotect(page_in(block[3]), 8192, PROT_READ | PROT_WRITE, -1))
CALL(advise, failed = madvise(block[14] + 65536, 65536, MADV_DONTFORK))
CALL(advise_posix, failed = posix_madvise(block[14], 65536, POSIX_MADV_RANDOM))
CALL(lock, failed = mlock(block[14], 65536))
CALL(lock_2, failed = mlock2(block[14] + 131072, 4096, MLOCK_ONFAULT))
CALL(unlock, failed = munlock(block[14], 65536))
CALL(unmap_64, munmap(block[14], 1 << 20))
CALL(remap, block[7] = mremap(block[7], 1 << 20, 2 << 20, MREMAP_MAYMOVE))
CALL(unmap_part, munmap(block[7] + 65536, 65536))
CALL(unmap, munmap(block[7], 2 << 20))
CALL(unmap_shared, munmap(block[8], 1 << 20))
CALL(shm_attach, block[9] = shmat(segment, NULL, 0))
CALL(shm_detach, shmdt(block[9]))
CALL(load, handle = dlopen(library, RTLD_NOW))
CALL(unload, dlclose(handle))
CALL(load_by_name, handle = dlopen("libutil.so.1", RTLD_NOW))
static void *keeps(void *p) { *(volatile char *)p = 1; return p; }
CALL(come_and_go, for (size_t i = 0; i < 3000; i++) free(keeps(malloc((1 + i % 7) << 18))))
#define RESIZE(times, n) char *p = NULL; for (size_t i = 0; i < times; i++) p = keeps(realloc(p, n)); free(p)
CALL(grow_and_shrink, RESIZE(3000, (1 + i * 5 % 13) << 17))
CALL(grow_by_steps, RESIZE(400, (1 + i % 40) << 17))
CALL(fork_wait, int p = fork(); if (!p) { free(malloc(9000)); _exit(3); } waitpid(p, NULL, 0))

static void *nothing(void *p) { return p; }
static pthread_t thread;
CALL(create, pthread_create(&thread, NULL, nothing, NULL))

/* Programs that are not there, so that exec returns. */
#define NOWHERE "/no/such/program"
extern char **environ;
static char *arguments[] = {"program", NULL};
static pid_t child;
static FILE *pipe_end;
static void ended(void) { waitpid(child, NULL, 0); }
CALL(exec_l, execl(NOWHERE, "program", NULL))
CALL(exec_le, execle(NOWHERE, "program", NULL, environ))
CALL(exec_lp, execlp("no-such-program", "program", NULL))
CALL(exec_v, execv(NOWHERE, arguments))
CALL(exec_ve, execve(NOWHERE, arguments, environ))
CALL(exec_vp, execvp("no-such-program", arguments))
CALL(exec_vpe, execvpe("no-such-program", arguments, environ))
CALL(exec_f, fexecve(-1, arguments, environ))
CALL(spawn, failed = posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ); if (!failed) ended())
CALL(spawn_by_name, failed = posix_spawnp(&child, "true", NULL, NULL, arguments, environ); if (!failed) ended())
CALL(command, failed = system("exit 0"))
CALL(pipe_open, pipe_end = popen("exit 0", "r"))
CALL(pipe_close, pclose(pipe_end))

CALL(control, failed = prctl(PR_SET_DUMPABLE, 1, 0, 0, 0))
CALL(device, failed = ioctl(-1, TCGETS, NULL))
CALL(tune, mallopt(M_MMAP_THRESHOLD, 128 << 10))
CALL(trim, malloc_trim(0))
CALL(phase_late, if (numamma_phase) numamma_phase("late"))
CALL(phase_early, if (numamma_phase) numamma_phase("early"))
CALL(samples_off, if (numamma_profile) numamma_profile(0))
CALL(samples_on, if (numamma_profile) numamma_profile(1))
CALL(confine, failed = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
/* Last: new memory is locked until munlockall. */
CALL(lock_all, failed = mlockall(MCL_CURRENT); munlockall())

static const struct call { const char *name, *text; void (*run)(void); int touched; } calls[] = {
#define ROW(name, touched) {#name, name##_text, name, touched}
    ROW(malloc_small, 0), ROW(malloc_page, 1), ROW(malloc_large, 2), ROW(malloc_huge, 3), ROW(calloc_large, 4),
    ROW(memalign_large, 5), ROW(align_posix, 10), ROW(align_c11, 11), ROW(align_page, 12), ROW(align_whole_pages, 13),
    ROW(array_grows, 11), ROW(libc_grows, 12), ROW(phase_late, -1), ROW(free_libc, -1), ROW(free_by_size, -1),
    ROW(free_old, -1), ROW(align_again, 13), ROW(phase_early, -1), ROW(free_aligned, -1), ROW(free_pages, -1),
    ROW(realloc_new, 6), ROW(realloc_grows, 6), ROW(realloc_small, 0), ROW(usable_size, -1), ROW(protect_key, -1),
    ROW(free_small, -1), ROW(free_page, -1), ROW(free_large, -1), ROW(free_huge, -1), ROW(free_calloc, -1),
    ROW(free_memalign, -1), ROW(free_realloc, -1), ROW(map, 7), ROW(map_shared, 8), ROW(map_64, 14), ROW(map_over, 14),
    ROW(protect, -1), ROW(advise, -1), ROW(advise_posix, -1), ROW(lock, -1), ROW(lock_2, -1), ROW(unlock, -1),
    ROW(unmap_64, -1), ROW(remap, 7), ROW(unmap_part, -1), ROW(unmap, -1), ROW(unmap_shared, -1), ROW(shm_attach, 9),
    ROW(shm_detach, -1), ROW(load, -1), ROW(malloc_page, 1), ROW(unload, -1), ROW(load_by_name, -1), ROW(free_page, -1),
    ROW(unload, -1), ROW(create, -1), ROW(fork_wait, -1), ROW(come_and_go, -1), ROW(grow_and_shrink, -1),
    ROW(grow_by_steps, -1), ROW(exec_l, -1), ROW(exec_le, -1), ROW(exec_lp, -1), ROW(exec_v, -1), ROW(exec_ve, -1),
    ROW(exec_vp, -1), ROW(exec_vpe, -1), ROW(exec_f, -1), ROW(spawn, -1), ROW(spawn_by_name, -1), ROW(command, -1),
    ROW(pipe_open, -1), ROW(pipe_close, -1), ROW(control, -1), ROW(device, -1), ROW(samples_off, -1),
    ROW(samples_on, -1), ROW(trim, -1), ROW(tune, -1), ROW(lock_all, -1),
};
/* Bytes of each block that are touched after the call. */
static const size_t bytes[] = {100,     5000,  1 << 20, 5 << 20, 200000, 100000, 30000, 1 << 20,
                               1 << 20, 4096,  70000,   81920,   64000,  91000,  1 << 20};
