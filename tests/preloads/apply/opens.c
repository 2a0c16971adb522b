// Opens the library that its argument names and runs it.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *library = dlopen(argv[argc - 1], RTLD_NOW);
    if (!library) { fprintf(stderr, "%s\n", dlerror()); return 99; }
    int (*plugin_run)(void) = (int (*)(void))dlsym(library, "plugin_run");
    return plugin_run ? plugin_run() : 98;
}
