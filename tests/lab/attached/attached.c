/* attached: shared memory in blocks, of which each user counts the attachments.
 *
 * stdout, a line per object: NAME ATTACHMENTS MAPPINGS and the node of each page by the kernel's word (move_pages(2)).
 * Another program, which has no library of ours, touches the second half of the System V segment first; so does a child
 * that inherited the mapping with the file. At the end "last: 1" if the count tells the program that it is the last user.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 256, SIZE = PAGES * PAGE };

#define SITE __attribute__((noinline, noclone)) static char *
SITE by_shmat(int id) { char *p = shmat(id, NULL, 0); __asm__ volatile("" : "+r"(p)); return p; }
SITE by_memfd(int fd) { char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); __asm__ volatile("" : "+r"(p)); return p; }
SITE by_phase(int id) { char *p = shmat(id, NULL, 0); __asm__ volatile("nop" : "+r"(p)); return p; }

static int attachments(int id) {
    struct shmid_ds now;
    return shmctl(id, IPC_STAT, &now) ? -1 : (int)now.shm_nattch;
}

static int mappings(char *p) {
    char line[512];
    int n = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        sscanf(line, "%lx-%lx", &from, &to);
        n += from < (unsigned long)p + SIZE && to > (unsigned long)p;
    }
    fclose(maps);
    return n;
}

static void touch(char *p, int from) {
    for (int i = from; i < PAGES; i++) p[i * PAGE] = 1;
}

static void show(const char *name, char *p, int count) {
    void *pages[PAGES];
    int nodes[PAGES];
    touch(p, 0);
    for (int i = 0; i < PAGES; i++) pages[i] = p + i * PAGE;
    if (syscall(SYS_move_pages, 0, (long)PAGES, pages, NULL, nodes, 0)) perror("move_pages");
    printf("%s %d %d", name, count, mappings(p));
    for (int i = 0; i < PAGES; i++) printf(" %d", nodes[i]);
    printf("\n");
}

int main(int argc, char **argv) {
    if (argc > 1) {
        touch(shmat(atoi(argv[1]), NULL, 0), PAGES / 2);
        return 0;
    }
    int id = shmget(IPC_PRIVATE, SIZE, 0600), phased = shmget(IPC_PRIVATE, SIZE, 0600), fd = memfd_create("file", 0);
    if (ftruncate(fd, SIZE)) perror("ftruncate");
    char *segment = by_shmat(id), *file = by_memfd(fd), *moved = by_phase(phased);
    touch(moved, 0);
    sleep(1); /* the phase begins, and the pages are moved */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char word[16];
        touch(file, PAGES / 2);
        snprintf(word, sizeof word, "%d", id);
        unsetenv("LD_PRELOAD");
        execl("/proc/self/exe", "attached", word, NULL);
        _exit(1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status) printf("child: %x\n", status);
    show("segment", segment, attachments(id));
    show("file", file, 1);
    show("phased", moved, attachments(phased));
    shmdt(moved);
    shmctl(phased, IPC_RMID, NULL);
    if (attachments(id) == 1) shmctl(id, IPC_RMID, NULL), printf("last: 1\n");
    return 0;
}
