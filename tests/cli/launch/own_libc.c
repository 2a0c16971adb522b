/* A program that brings a C library of its own, older than any that a library of today was linked to.
 *
 * With -DLIBRARY it is that C library: it has one version of symbols, and nothing that works. */
#ifdef LIBRARY
void nothing(void) {}
#else
void _start(void) { __asm__ volatile("syscall" : : "a"(231L), "D"(5L) : "rcx", "r11", "memory"); /* exit_group(5) */ }
#endif
