/* Does as it is told, one word after the other:
 *   out TEXT, err TEXT   writes it           exit N, kill N   ends that way
 *   spin MS              uses CPU time       sleep MS         waits
 *   copy                 stdin to stdout     catch N          prints "caught N" when signal N comes and exits with 5
 *   mask                 prints ignored signals and the signal mask
 *   read BYTES           read() from /dev/zero into a fresh block
 */
#include <signal.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double cells[1 << 16];

static void caught(int n) {
    char text[] = "caught 00\n";
    text[7] = '0' + n / 10;
    text[8] = '0' + n % 10;
    write(1, text, 10);
    _exit(5);
}

__attribute__((noinline)) static void spin(double ms) {
    clock_t end = clock() + ms * CLOCKS_PER_SEC / 1000;
    while (clock() < end)
        for (int i = 0; i < 1 << 16; i++) cells[i] += 1;
}

static void mask(void) {
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    for (int n = 1; n < 32; n++) {
        struct sigaction a;
        if (sigaction(n, NULL, &a) == 0 && a.sa_handler == SIG_IGN) printf("ignored %d\n", n);
        if (sigismember(&set, n)) printf("blocked %d\n", n);
    }
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *arg = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(word, "mask")) { mask(); fflush(stdout); continue; }
        if (!strcmp(word, "copy")) {
            char buffer[4096];
            for (ssize_t n; (n = read(0, buffer, sizeof buffer)) > 0;) write(1, buffer, n);
            continue;
        }
        i++;
        if (!strcmp(word, "out")) write(1, arg, strlen(arg));
        if (!strcmp(word, "err")) write(2, arg, strlen(arg));
        if (!strcmp(word, "exit")) return atoi(arg);
        if (!strcmp(word, "kill")) raise(atoi(arg));
        if (!strcmp(word, "spin")) spin(atof(arg));
        if (!strcmp(word, "sleep")) usleep(atoi(arg) * 1000);
        if (!strcmp(word, "catch")) signal(atoi(arg), caught);
        if (!strcmp(word, "read")) {
            size_t n = atol(arg);
            int fd = open("/dev/zero", O_RDONLY);
            char *block = malloc(n);
            if (read(fd, block, n) != (ssize_t)n) return 98;
        }
    }
    return 0;
}
