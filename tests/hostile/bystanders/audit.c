/* The smallest auditing library of ld.so (rtld-audit(7)): it gets a link namespace and a C library of its own. */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>

unsigned la_version(unsigned version) { return version; }

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie) {
    (void)space, (void)cookie;
    free(malloc(map->l_name[0] ? 5000 : 100));
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}
