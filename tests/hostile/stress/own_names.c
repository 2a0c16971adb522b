/* A program of ISO C alone may define functions with the names of POSIX. Nothing but its own code may call them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long called;

void read(double *x) { *x += 1; called++; }
void write(const char *what) { puts(what); called++; }
int close(double a, double b) { called++; return a < b; }
int syscall(int n) { called += n; return n; }
int open64(void) { called++; return 0; }
int openat(void) { called++; return 0; }
int stat64(void) { called++; return 1; }
int fstat64(void) { called++; return 1; }
int statx(void) { called++; return 1; }
int lseek64(void) { called++; return 1; }
int poll(void) { called++; return 42; }
int getpid(void) { called++; return 1; }
int gettid(void) { called++; return 1; }
char *getcwd(void) { called++; return "/"; }
int readlink(void) { called++; return 7; }
int fcntl(void) { called++; return 7; }
int madvise(void) { called++; return 0; }

static int sum(const char *block, int n) {
    int all = 0;
    for (int i = 0; i < n; i++) all += block[i];
    return all;
}

int main(void) {
    int all = 0;
    for (int round = 0; round < 2000; round++) {
        char *block = malloc(5000 + round * 100);
        memset(block, 1, 5000);
        all += sum(block, 5000);
        if (round % 3) free(block);
    }
    printf("%d in all, own functions called %ld times\n", all, called);
    return 3;
}
