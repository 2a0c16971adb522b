/* Libraries that register memory with a network card replace the first instructions of libc's munmap and madvise in
 * order to learn what is unmapped (libucm of UCX). This program does the same, and then frees arrays that glibc always
 * unmaps (from 32 MiB on): whatever is not mapped any more, it must have been told of. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARRAYS = 6, ARRAY = 33 << 20, PAGE = 4096 };
static volatile struct { char *from, *to; } told[1000];
static volatile int calls; /* free is known to the compiler: it would take it for 0 */

static void note(char *address, size_t length) {
    if (calls < 1000) {
        told[calls].from = address;
        told[calls].to = address + length;
        calls = calls + 1;
    }
}

static int seen_munmap(void *address, size_t length) {
    note(address, length);
    return syscall(SYS_munmap, address, length);
}

static int seen_madvise(void *address, size_t length, int advice) {
    if (advice == MADV_DONTNEED) note(address, length);
    return syscall(SYS_madvise, address, length, advice);
}

static void replace(const char *name, void *by) {
    unsigned char *code = dlsym(dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), name);
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}; /* mov rax, by; jmp rax */
    memcpy(jump + 2, &by, 8);
    char *page = (char *)((uintptr_t)code & -PAGE);
    if (mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) exit(2);
    memcpy(code, jump, sizeof jump);
    mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC);
}

static int was_told(char *address) {
    for (int i = 0; i < calls; i++)
        if (told[i].from <= address && address < told[i].to) return 1;
    return 0;
}

int main(void) {
    replace("munmap", (void *)seen_munmap);
    replace("madvise", (void *)seen_madvise);
    int gone = 0, silent = 0;
    for (int i = 0; i < ARRAYS; i++) {
        char *array = malloc(ARRAY + i * PAGE);
        memset(array, i, PAGE);
        char *middle = (char *)(((uintptr_t)array + ARRAY / 2) & -PAGE);
        calls = 0;
        free(array);
        unsigned char there;
        if (mincore(middle, 1, &there) != 0) {
            gone++;
            silent += !was_told(middle);
        }
    }
    printf("%s unmapped, %d of them in silence\n", gone ? "some" : "none", silent);
    return silent;
}
