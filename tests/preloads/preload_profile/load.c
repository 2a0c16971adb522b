/* dlopen, call, dlclose each library of argv in turn, several times. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    for (int round = 0; round < 3; round++)
        for (int i = 1; i < argc; i++) {
            void *handle = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
            if (!handle) return puts(dlerror()), 1;
            void *(*allocate)(void) = (void *(*)(void))dlsym(handle, "plugin_allocate");
            if (!allocate) return 2;
            printf("%d %p %p\n", i, (void *)allocate, dlsym(handle, "plugin_inner"));
            free(allocate());
            if (dlclose(handle)) return 3;
        }
    if (dlopen("/nonexistent/library.so", RTLD_NOW) || !dlerror() || dlerror()) return 4;
    return 0;
}
