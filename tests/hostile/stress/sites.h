/* 200 functions that allocate: call sites of their own, `site_000` to `site_199` in a policy. */
#include <stdlib.h>

enum { SITES = 200 };

#define SITE(n) \
    __attribute__((noinline)) static void *site_##n(size_t size) { \
        void *p = malloc(size); \
        __asm__ volatile("" ::: "memory"); \
        return p; \
    }
#define TEN(n) SITE(n##0) SITE(n##1) SITE(n##2) SITE(n##3) SITE(n##4) SITE(n##5) SITE(n##6) SITE(n##7) SITE(n##8) SITE(n##9)
#define HUNDRED(n) TEN(n##0) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8) TEN(n##9)
HUNDRED(0) HUNDRED(1)
#define NAME(n) site_##n,
#define TEN_NAMES(n) NAME(n##0) NAME(n##1) NAME(n##2) NAME(n##3) NAME(n##4) NAME(n##5) NAME(n##6) NAME(n##7) NAME(n##8) NAME(n##9)
#define HUNDRED_NAMES(n) \
    TEN_NAMES(n##0) TEN_NAMES(n##1) TEN_NAMES(n##2) TEN_NAMES(n##3) TEN_NAMES(n##4) \
    TEN_NAMES(n##5) TEN_NAMES(n##6) TEN_NAMES(n##7) TEN_NAMES(n##8) TEN_NAMES(n##9)
static void *(*const sites[SITES])(size_t) = {HUNDRED_NAMES(0) HUNDRED_NAMES(1)};
