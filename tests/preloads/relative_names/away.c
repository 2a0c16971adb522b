/* away DIRECTORY PROGRAM: says which policy it was given, goes to the directory and becomes the program. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *policy = getenv("NUMAMMA_POLICY");
    if (argc < 3) return 3;
    printf("%s\n", policy ? policy : "none");
    fflush(stdout);
    if (chdir(argv[1])) return perror(argv[1]), 3;
    execv(argv[2], argv + 2);
    return perror(argv[2]), 3;
}
