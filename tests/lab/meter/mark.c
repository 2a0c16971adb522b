/* meter-mark: runs a command in the guest and tells the meter which process to count.
 *
 *   meter-mark [--name TEXT] [--exec PROGRAM] [--from FUNCTION] [--until FUNCTION] [--during FUNCTION]
 *              [--] command args...
 *
 * The command itself is metered; with --exec, every program of that name that it starts, one run each (for
 * `meter-mark --exec lu -- numamma profile -- ./lu`). --from and --until name functions of the program's symbol table:
 * what is counted begins and ends where they are first executed.
 *
 * The program is unmodified: it is stopped when exec has loaded it, made to execute the marker (marker.h) in its own
 * address space, put back as it was and let go. Exit status: the command's.
 */
#define _GNU_SOURCE
#include "marker.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *name, *only, *from, *until, *during;

__attribute__((noinline, naked)) static void mark(uint64_t operation, const void *what, uint64_t number) {
    __asm__(".byte 0x0f, 0x1f, 0x84, 0x00, 0x61, 0x6d, 0x75, 0x6e\n\tret");
}

static void die(const char *what) {
    fprintf(stderr, "meter-mark: %s: %s\n", what, strerror(errno));
    exit(125);
}

/* Shows the meter a page of each node that the kernel says is there. */
static void show_nodes(void) {
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) die("mmap");
    for (unsigned node = 0; node < 64; node++) {
        unsigned long mask = 1ul << node;
        int on = -1;
        if (syscall(SYS_mbind, page, 4096, MPOL_BIND, &mask, 65, MPOL_MF_MOVE) != 0) break;
        *(volatile char *)page = 1;
        if (syscall(SYS_get_mempolicy, &on, NULL, 0, page, MPOL_F_NODE | MPOL_F_ADDR) != 0) die("get_mempolicy");
        if (on != (int)node) continue;
        mark(MARK_PAGE, page, node);
        (void)*(volatile char *)page;
    }
    munmap(page, 4096);
}

/* Addresses in the file of functions, at most `most`: of that name, or of it and what a compiler adds behind a dot. */
static void symbols(const char *file, uint64_t bias, const char *wanted, uint64_t *found, int most) {
    const Elf64_Ehdr *header = (const void *)file;
    const Elf64_Shdr *section = (const void *)(file + header->e_shoff);
    size_t length = strcspn(wanted, ",*");
    int prefix = wanted[length] == '*';
    int have_found = 0;
    for (int i = 0; i < header->e_shnum; i++) {
        if (section[i].sh_type != SHT_SYMTAB && section[i].sh_type != SHT_DYNSYM) continue;
        const Elf64_Sym *all = (const void *)(file + section[i].sh_offset);
        const char *names = file + section[section[i].sh_link].sh_offset;
        for (uint64_t s = 0; s < section[i].sh_size / sizeof *all; s++) {
            const char *have = names + all[s].st_name;
            if (ELF64_ST_TYPE(all[s].st_info) == STT_FUNC && all[s].st_value && !strncmp(have, wanted, length) &&
                (prefix || have[length] == 0 || have[length] == '.') && !strstr(have, ".cold") && have_found < most)
                found[have_found++] = all[s].st_value + bias;
        }
        if (have_found) break;
    }
    const char *more = strchr(wanted, ',');
    if (have_found && more) symbols(file, bias, more + 1, found + have_found, most - have_found);
    if (have_found) return;
    fprintf(stderr, "meter-mark: the program has no function '%.*s' in its symbol table\n", (int)length, wanted);
    exit(125);
}

/* Where the first mapping of the program's file is. */
static uint64_t first_mapping(pid_t pid, const char *path) {
    char maps[64], line[PATH_MAX + 128];
    uint64_t at = 0;
    snprintf(maps, sizeof maps, "/proc/%d/maps", pid);
    FILE *f = fopen(maps, "r");
    if (!f) die(maps);
    while (!at && fgets(line, sizeof line, f)) {
        char *file = strchr(line, '/');
        line[strcspn(line, "\n")] = 0;
        if (file && !strcmp(file, path)) at = strtoull(line, NULL, 16);
    }
    fclose(f);
    return at;
}

static void describe(pid_t pid, struct marked_run *run) {
    char link[64], path[PATH_MAX] = "";
    struct stat status;
    snprintf(link, sizeof link, "/proc/%d/exe", pid);
    if (readlink(link, path, sizeof path - 1) < 0) die(link);
    int fd = open(link, O_RDONLY);
    if (fd < 0 || fstat(fd, &status) != 0) die(path);
    const char *file = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file == MAP_FAILED) die(path);
    close(fd);
    const Elf64_Ehdr *header = (const void *)file;
    if (header->e_type == ET_DYN) run->load_bias = first_mapping(pid, path);
    if (from) symbols(file, run->load_bias, from, &run->from, 1);
    if (until) symbols(file, run->load_bias, until, &run->until, 1);
    if (during) symbols(file, run->load_bias, during, run->during, sizeof run->during / sizeof *run->during);
    munmap((void *)file, status.st_size);
    const char *base = strrchr(path, '/');
    snprintf(run->name, sizeof run->name, "%s", name ? name : base ? base + 1 : path);
}

/* Makes the stopped process execute the marker and an int3, then puts it back. */
static void enter(pid_t pid) {
    static struct marked_run run;
    struct user_regs_struct before, during;
    uint8_t code[16] = MARKER_BYTES;
    long kept[2], patch[2];
    int status;
    memset(&run, 0, sizeof run);
    describe(pid, &run);
    mark(MARK_RUN, &run, 0);
    if (ptrace(PTRACE_GETREGS, pid, 0, &before) != 0) die("ptrace");
    for (int i = 0; i < 2; i++) kept[i] = ptrace(PTRACE_PEEKTEXT, pid, before.rip + 8 * i, 0);
    memcpy(patch, kept, sizeof patch);
    code[MARKER_LENGTH] = 0xcc;
    memcpy(patch, code, MARKER_LENGTH + 1);
    for (int i = 0; i < 2; i++)
        if (ptrace(PTRACE_POKETEXT, pid, before.rip + 8 * i, patch[i]) != 0) die("ptrace");
    during = before;
    during.rdi = MARK_ENTER;
    if (ptrace(PTRACE_SETREGS, pid, 0, &during) != 0 || ptrace(PTRACE_CONT, pid, 0, 0) != 0) die("ptrace");
    if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) die("the marker");
    for (int i = 0; i < 2; i++) ptrace(PTRACE_POKETEXT, pid, before.rip + 8 * i, kept[i]);
    if (ptrace(PTRACE_SETREGS, pid, 0, &before) != 0) die("ptrace");
}

static int is_wanted(pid_t pid) {
    char link[64], path[PATH_MAX] = "";
    if (!only) return 1;
    snprintf(link, sizeof link, "/proc/%d/exe", pid);
    if (readlink(link, path, sizeof path - 1) < 0) return 0;
    const char *base = strrchr(path, '/');
    return !strcmp(base ? base + 1 : path, only);
}

enum { FOLLOW = PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE };

/* Follows the command until it has ended; its exit status. */
static int follow(pid_t command) {
    pid_t entered = 0;
    int status, entries = 0, result = 0;
    for (;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) break;
        if (!WIFSTOPPED(status)) {
            if (pid == entered) mark(MARK_LEAVE, 0, 0), entered = 0;
            if (pid == command) result = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16;
        if (event == PTRACE_EVENT_EXEC && !entered && is_wanted(pid)) {
            /* From here on its threads and children are its own affair. */
            ptrace(PTRACE_SETOPTIONS, pid, 0, 0);
            enter(entered = pid);
            entries++;
        }
        /* SIGSTOP: how the kernel stops a new process that is followed. */
        ptrace(PTRACE_CONT, pid, 0, event || signal == SIGTRAP || signal == SIGSTOP ? 0 : signal);
    }
    if (!entries) fprintf(stderr, "meter-mark: %s was not started\n", only ? only : "the command");
    return result;
}

int main(int argc, char **argv) {
    const struct { const char *option; const char **to; } options[] = {
        { "--name", &name }, { "--exec", &only }, { "--from", &from }, { "--until", &until },
        { "--during", &during },
    };
    enum { OPTIONS = sizeof options / sizeof *options };
    int at = 1;
    while (at < argc && argv[at][0] == '-') {
        size_t i = 0;
        if (!strcmp(argv[at], "--") && ++at) break;
        while (i < OPTIONS && strcmp(argv[at], options[i].option) != 0) i++;
        if (i == OPTIONS || at + 1 >= argc) break;
        *options[i].to = argv[at + 1];
        at += 2;
    }
    if (at >= argc || (argv[at][0] == '-' && strcmp(argv[at - 1], "--") != 0)) {
        fprintf(stderr, "meter-mark: --name, --exec, --from, --until, --during with a value each, then a command\n");
        return 125;
    }
    show_nodes();
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        execvp(argv[at], argv + at);
        fprintf(stderr, "meter-mark: %s: %s\n", argv[at], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
    }
    int status;
    if (waitpid(child, &status, __WALL) != child || !WIFSTOPPED(status)) die("the command");
    if (ptrace(PTRACE_SETOPTIONS, child, 0, only ? FOLLOW : PTRACE_O_TRACEEXEC) != 0) die("ptrace");
    ptrace(PTRACE_CONT, child, 0, 0);
    return follow(child);
}
