/* NumaMMA: numamma_phase() tells the apply library that a phase of the program begins; numamma_profile() tells
 * `numamma profile` which part of the run is to be sampled.
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
 *     numamma_profile(1);
 *     solve();
 *     numamma_profile(0);
 *
 * Under `numamma profile --start-paused` samples are taken between these calls only, from all threads of the process; without
 * that option from the start to the first numamma_profile(0), and where they are switched on again. Allocations are recorded
 * all the time, so that objects have names. Without `numamma profile` it does nothing. For it, too, nothing has to be
 * linked, any thread but no signal handler may call it, and a call without effect costs a few nanoseconds.
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

typedef void (*numamma_profile_function)(int);

static void numamma_profile_nothing(int on) { (void)on; }

/* Samples are wanted from now on, unless `on` is 0. */
__attribute__((unused)) static void numamma_profile(int on) {
    static void *found; /* two threads that set it at once store the same value */
    void *function = __atomic_load_n(&found, __ATOMIC_RELAXED);
    union {
        void *object;
        numamma_profile_function function;
    } call;
    if (!function) {
        function = dlsym((void *)0 /* RTLD_DEFAULT, which needs _GNU_SOURCE */, "numamma_profile");
        if (!function) {
            (void)dlerror(); /* the program's next dlerror() must not report this look-up */
            call.function = numamma_profile_nothing;
            function = call.object;
        }
        __atomic_store_n(&found, function, __ATOMIC_RELAXED);
    }
    call.object = function;
    call.function(on);
}

#ifdef __cplusplus
}
#endif

#endif
