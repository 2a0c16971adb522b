/* Two libraries by turns at one address, with equally many accesses to one page: READS loads twice, WRITES stores twice. */
#if defined(READS)
long use(volatile long *words) { return words[0] + words[1]; }
#elif defined(WRITES)
long use(volatile long *words) {
    words[0] = 1;
    words[1] = 2;
    return 0;
}
#else
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    long *words = aligned_alloc(4096, 4096);
    int same = 0;
    void *last = 0;
    for (int round = 0; argc > 2 && round < 200; round++) {
        void *library = dlopen(argv[1 + round % 2], RTLD_NOW);
        if (!library) return 1;
        long (*use)(long *) = (long (*)(long *))dlsym(library, "use");
        same += (void *)use == last;
        last = (void *)use;
        for (int i = 0; i < 10; i++) use(words);
        dlclose(library);
    }
    printf("%d\n", same);
}
#endif
