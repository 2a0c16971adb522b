/* as_nobody PROGRAM [ARGS]: runs a program without any privilege. */
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 2 || setgid(65534) != 0 || setuid(65534) != 0) return 3;
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 3;
}
