// Truth: the parent writes 1000 words before it forks and 500 behind it; the child writes 300 of the same words.
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t *data;

__attribute__((noinline)) static void fill(int words, uint64_t value) {
    for (int word = 0; word < words; word++)
        data[word] = value;
}

int main(void) {
    data = aligned_alloc(4096, 8192);
    fill(1000, 1);
    pid_t child = fork();
    if (child == 0) {
        fill(300, 2);
        _exit(data[0] != 2 || data[999] != 1);
    }
    fill(500, 3);
    int status = 1;
    waitpid(child, &status, 0);
    return status != 0;
}
