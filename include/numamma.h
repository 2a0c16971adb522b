/* NumaMMA: numamma_phase() tells the apply library that a phase of the program begins.
 *
 *     #include <numamma.h>
 *     ...
 *     numamma_phase("solve");
 *
 * A policy can give objects another place from then on ([[phase]] with name = "solve", and phases = { solve = { ... } } at an
 * object). Without libnumamma-apply.so in LD_PRELOAD, or without such a phase in the policy, it does nothing, and nothing
 * has to be linked (before glibc 2.34: -ldl). Any thread may call it. A call without effect costs a few nanoseconds. Do not call it in
 * a signal handler.
 *
 * The library is looked up with dlsym and not by a weak reference, because the linker resolves a weak reference to nothing in an
 * executable that is not position-independent (gcc -no-pie), whatever is preloaded.
 *
 * Fortran: put these two lines into a C file of the program,
 *
 *     #include <numamma.h>
 *     void begin_phase(const char *name) { numamma_phase(name); }
 *
 * and declare in Fortran
 *
 *     interface
 *       subroutine begin_phase(name) bind(C)
 *         use iso_c_binding, only: c_char
 *         character(kind=c_char), intent(in) :: name(*)
 *       end subroutine
 *     end interface
 *     ...
 *     call begin_phase("solve" // c_null_char)
 */
#ifndef NUMAMMA_H
#define NUMAMMA_H

#include <dlfcn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*numamma_phase_function)(const char *);

static void numamma_phase_nothing(const char *name) { (void)name; }

/* Phase `name` begins now. */
__attribute__((unused)) static void numamma_phase(const char *name) {
    static void *found; /* two threads that set it at once store the same value */
    void *function = __atomic_load_n(&found, __ATOMIC_RELAXED);
    union {
        void *object;
        numamma_phase_function function;
    } call;
    if (!function) {
        function = dlsym((void *)0 /* RTLD_DEFAULT, which needs _GNU_SOURCE */, "numamma_phase");
        if (!function) {
            (void)dlerror(); /* the program's next dlerror() must not report this look-up */
            call.function = numamma_phase_nothing;
            function = call.object;
        }
        __atomic_store_n(&found, function, __ATOMIC_RELAXED);
    }
    call.object = function;
    call.function(name);
}

#ifdef __cplusplus
}
#endif

#endif
