/* Caches: for each CPU a first level and a second level of its own, for each node a last level that takes what the
 * second levels evict. Lines of physical memory, MESI, least recently used goes first.
 *
 * The first level (32 KiB, direct mapped) is looked up by virtual address and only decides what costs nothing: its
 * lines are in the second level, too, so it does not change what leaves the caches. A directory knows for each line
 * which caches hold it.
 */
#define _GNU_SOURCE
#include "meter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum state { INVALID, SHARED, EXCLUSIVE, MODIFIED };
struct way {
    uint64_t line;
    double written; /* modelled time of the last store, 0: not by this CPU */
    uint32_t used;
    uint8_t state;
};
struct cache {
    struct way *ways;
    uint64_t sets, assoc;
    uint32_t now;
};
struct first {
    uint64_t virtual_line, line;
    struct way *way;
    struct page *page;
};
/* Who holds a line. `owner` and `writer` are CPU numbers + 1. */
struct holders {
    uint64_t cpus, nodes;
    double written; /* modelled time of the last store that left its CPU's cache */
    uint8_t owner, writer, dirty_node;
};

static struct cache l2[CPUS], llc[NODES];
static struct first l1[CPUS][L1_LINES];
static struct holders *directory;
static uint64_t directory_bytes;

static void make(struct cache *c, uint64_t bytes, uint64_t assoc) {
    c->assoc = assoc;
    c->sets = bytes / LINE / assoc ? bytes / LINE / assoc : 1;
    c->ways = calloc(c->sets * assoc, sizeof *c->ways);
    if (!c->ways) abort();
}

void caches_make(void) {
    for (unsigned i = 0; i < config.cpus; i++) make(&l2[i], model.l2_bytes, model.l2_ways);
    for (unsigned i = 0; i < config.nodes; i++)
        make(&llc[i], model.llc_bytes * config.cpus_per_node, model.llc_ways);
    directory_bytes = config.nodes * config.node_bytes / LINE * sizeof *directory;
    directory = mmap(NULL, directory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (directory == MAP_FAILED) abort();
}

void caches_empty(void) {
    for (unsigned i = 0; i < config.cpus; i++) {
        memset(l2[i].ways, 0, l2[i].sets * l2[i].assoc * sizeof(struct way));
        cache_forget_addresses(i);
    }
    for (unsigned i = 0; i < config.nodes; i++)
        memset(llc[i].ways, 0, llc[i].sets * llc[i].assoc * sizeof(struct way));
    madvise(directory, directory_bytes, MADV_DONTNEED);
}

void cache_forget_addresses(unsigned cpu) { memset(l1[cpu], 0, sizeof l1[cpu]); }

static unsigned home(uint64_t line) { return line / (config.node_bytes / LINE); }

static struct way *set_of(struct cache *c, uint64_t line) { return &c->ways[line % c->sets * c->assoc]; }

static struct way *find(struct cache *c, uint64_t line) {
    struct way *set = set_of(c, line);
    for (uint64_t i = 0; i < c->assoc; i++)
        if (set[i].state != INVALID && set[i].line == line) {
            set[i].used = ++c->now;
            return &set[i];
        }
    return NULL;
}

/* A free way, or the least recently used. */
static struct way *victim(struct cache *c, uint64_t line) {
    struct way *set = set_of(c, line), *oldest = set;
    for (uint64_t i = 0; i < c->assoc; i++) {
        if (set[i].state == INVALID) return &set[i];
        if (c->now - set[i].used > c->now - oldest->used) oldest = &set[i];
    }
    return oldest;
}

static void write_back(unsigned cpu, unsigned node, uint64_t line) {
    if (counting) counts.written_back[node][home(line)]++;
    clock_write_back(cpu, home(line));
}

/* A line that the second level of `cpu` gives up goes to the last level of its node. */
static void evict(unsigned cpu, struct way *way) {
    unsigned node = node_of_cpu(cpu);
    struct holders *h = &directory[way->line];
    h->cpus &= ~(1ull << cpu);
    if (h->owner == cpu + 1) h->owner = 0;
    if (way->written > 0) h->written = way->written, h->writer = cpu + 1;
    bool dirty = way->state == MODIFIED;
    struct way *to = find(&llc[node], way->line);
    if (!to) {
        to = victim(&llc[node], way->line);
        if (to->state != INVALID) {
            struct holders *old = &directory[to->line];
            old->nodes &= ~(1ull << node);
            if (old->dirty_node == node + 1) old->dirty_node = 0, write_back(cpu, node, to->line);
        }
        *to = (struct way){ .line = way->line, .used = ++llc[node].now, .state = SHARED };
    }
    h->nodes |= 1ull << node;
    if (dirty) h->dirty_node = node + 1;
    way->state = INVALID;
}

/* Takes the line from all caches but that of `cpu`. Its last store is remembered in the directory. */
static void invalidate_others(unsigned cpu, struct holders *h, uint64_t line) {
    for (uint64_t left = h->cpus & ~(1ull << cpu); left; left &= left - 1) {
        unsigned other = __builtin_ctzll(left);
        struct way *way = find(&l2[other], line);
        if (!way) continue;
        if (way->written > h->written) h->written = way->written, h->writer = other + 1;
        way->state = INVALID;
    }
    for (uint64_t left = h->nodes; left; left &= left - 1) {
        struct way *way = find(&llc[__builtin_ctzll(left)], line);
        if (way) way->state = INVALID;
    }
    h->cpus &= 1ull << cpu;
    h->nodes = 0, h->dirty_node = 0, h->owner = 0;
}

/* Where a line comes from that the CPU's own caches do not hold; waits for it. */
static bool fetch(unsigned cpu, struct holders *h, uint64_t line, bool store, struct page *page) {
    unsigned node = node_of_cpu(cpu), from = node;
    bool dirty = false, cached = false;
    if (h->owner) {
        struct way *way = find(&l2[h->owner - 1], line);
        from = node_of_cpu(h->owner - 1);
        dirty = way && way->state == MODIFIED;
        cached = dirty || from == node;
        if (way && way->written > 0) h->written = way->written, h->writer = h->owner;
        if (way) way->state = SHARED;
        h->owner = 0;
        /* Across nodes the home gets the line, too. */
        if (dirty && !store && from != node) write_back(cpu, from, line), dirty = false;
    } else if (h->dirty_node) {
        from = h->dirty_node - 1, dirty = cached = true;
        if (from != node && !store) write_back(cpu, from, line), dirty = false, h->dirty_node = 0;
    } else {
        uint64_t own = (config.cpus_per_node == 64 ? ~0ull : (1ull << config.cpus_per_node) - 1)
                       << node * config.cpus_per_node;
        cached = h->nodes >> node & 1 || h->cpus & own;
    }
    if (h->writer && h->writer != cpu + 1) clock_not_before(cpu, h->written);
    if (cached && from == node) {
        clock_wait(cpu, model.llc_ns / model.overlap);
    } else if (cached) {
        if (counting) counts.forwarded[node][from]++;
        clock_wait(cpu, model.memory_ns * config.distance[node][from] / 10);
    } else {
        unsigned at = home(line);
        if (counting) {
            (store ? counts.by_stores : counts.by_loads)[node][at]++;
            if (page) page->lines_by[node]++, page->lines_at[at]++, page->local += node == at;
        }
        clock_memory(cpu, at, line);
    }
    return dirty;
}

/* The line is in the second level of `cpu` afterwards, alone if it is stored to. */
static struct way *bring(unsigned cpu, uint64_t line, bool store, struct page *page) {
    struct holders *h = &directory[line];
    struct way *way = find(&l2[cpu], line);
    if (way) {
        clock_wait(cpu, model.l2_ns);
        if (store && way->state == SHARED) {
            invalidate_others(cpu, h, line);
            if (h->writer && h->writer != cpu + 1) clock_not_before(cpu, h->written);
        }
    } else {
        bool dirty = fetch(cpu, h, line, store, page);
        if (store) invalidate_others(cpu, h, line);
        bool alone = !(h->cpus | h->nodes);
        way = victim(&l2[cpu], line);
        if (way->state != INVALID) evict(cpu, way);
        *way = (struct way){ .line = line, .used = ++l2[cpu].now };
        /* A dirty line stays with the node that holds it unless it is stored to; see `fetch`. */
        way->state = store || (dirty && alone) ? MODIFIED : alone ? EXCLUSIVE : SHARED;
        h->cpus |= 1ull << cpu;
        if (dirty && !store && !alone) h->dirty_node = node_of_cpu(cpu) + 1;
    }
    if (store) way->state = MODIFIED, way->written = clock_of(cpu);
    if (way->state >= EXCLUSIVE) h->owner = cpu + 1;
    return way;
}

bool cache_quick(unsigned cpu, uint64_t address, bool store) {
    struct first *f = &l1[cpu][address / LINE % L1_LINES];
    if (f->virtual_line != address / LINE || !f->way || f->way->line != f->line) return false;
    if (f->way->state == INVALID || (store && f->way->state < EXCLUSIVE)) return false;
    if (store) f->way->state = MODIFIED, f->way->written = clock_of(cpu);
    if (counting) {
        if (store) counts.stores++; else counts.loads++;
        if (f->page) { if (store) f->page->stores++; else f->page->loads++; }
    }
    return true;
}

void cache_access(unsigned cpu, uint64_t line, bool store, uint64_t address) {
    struct first *f = &l1[cpu][address / LINE % L1_LINES];
    struct page *page = config.grain ? page_of(address) : NULL;
    if (counting) {
        if (store) counts.stores++; else counts.loads++;
        if (page) { if (store) page->stores++; else page->loads++; }
    }
    struct way *way = bring(cpu, line, store, page);
    *f = (struct first){ .virtual_line = address / LINE, .line = line, .way = way, .page = page };
}
