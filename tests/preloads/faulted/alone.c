/* Says in the file of its first argument when a window began, waits until the file of the second one exists, and says in
   the first one how many words are not as they were. */
#include "window.h"

int main(int count, char **words) {
    if (count != 3)
        return 1;
    uint64_t *all = filled(256);
    wait_for_window(all, 256);
    FILE *out = fopen(words[1], "w");
    fprintf(out, "window\n");
    fflush(out);
    const struct timespec ms = {0, 1000000};
    while (access(words[2], F_OK) != 0)
        nanosleep(&ms, NULL);
    fprintf(out, "hurt %zu\n", hurt(all, 0, 256));
    fclose(out);
    return 0;
}
