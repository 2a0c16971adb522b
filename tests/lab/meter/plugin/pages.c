/* Counts for each page of the metered process: a table of hashed page numbers whose entries never move. */
#include "meter.h"

#include <stdlib.h>
#include <string.h>

static struct page **table;
static uint64_t slots, used;

static uint64_t slot_of(uint64_t number) {
    uint64_t at = number * 0x9e3779b97f4a7c15ull & (slots - 1);
    while (table[at] && table[at]->number != number) at = (at + 1) & (slots - 1);
    return at;
}

static void grow(void) {
    struct page **old = table;
    uint64_t before = slots;
    slots = slots ? slots * 2 : 1 << 16;
    table = calloc(slots, sizeof *table);
    if (!table) abort();
    for (uint64_t i = 0; i < before; i++)
        if (old[i]) table[slot_of(old[i]->number)] = old[i];
    free(old);
}

struct page *page_of(uint64_t address) {
    uint64_t number = address / config.grain;
    if (used * 2 >= slots) grow();
    uint64_t at = slot_of(number);
    if (!table[at]) {
        table[at] = calloc(1, sizeof *table[at]);
        if (!table[at]) abort();
        table[at]->number = number;
        used++;
    }
    return table[at];
}

void pages_clear(void) {
    for (uint64_t i = 0; i < slots; i++) free(table[i]);
    free(table);
    table = NULL, slots = used = 0;
}

static int by_number(const void *a, const void *b) {
    uint64_t x = (*(struct page *const *)a)->number, y = (*(struct page *const *)b)->number;
    return x < y ? -1 : x > y;
}

struct page **pages_sorted(uint64_t *count) {
    struct page **list = calloc(used + 1, sizeof *list);
    if (!list) abort();
    *count = 0;
    for (uint64_t i = 0; i < slots; i++)
        if (table[i]) list[(*count)++] = table[i];
    qsort(list, *count, sizeof *list, by_number);
    return list;
}
