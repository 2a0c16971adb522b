/* The parts of the meter.
 *   meter.c    what qemu tells: accesses, markers, which process runs
 *   caches.c   which accesses leave the caches, and where their lines come from
 *   clock.c    a modelled time for each CPU; memory controllers as queues
 *   pages.c    the same counts for each page
 *   output.c   JSON and text
 */
#ifndef METER_H
#define METER_H
#include <stdbool.h>
#include <stdint.h>

enum { LINE = 64, NODES = 64, CPUS = 64, L1_LINES = 512 };

/* The machine that is modelled. Defaults: a core of a Xeon Gold 6148 (Skylake-SP, 20 cores a node) and its share of the
 * node, so that two emulated CPUs wait for a full controller when twenty would: data sheet for the caches and the six
 * channels of DDR4-2666 (128 GB/s a node, 6.4 a core); 90 ns for an idle local access as Intel's Memory Latency
 * Checker reports for that generation. */
struct model {
    uint64_t l2_bytes, l2_ways;   /* of each CPU */
    uint64_t llc_bytes, llc_ways; /* a CPU's share of its node's */
    double instruction_ns;        /* 2.4 GHz and 1.4 instructions a cycle */
    double l2_ns, llc_ns;         /* waiting for a line from there */
    double memory_ns;             /* from memory at distance 10; others in proportion to their distance */
    double gbps;                  /* a CPU's share of its node's memory bandwidth */
    double overlap;               /* irregular misses in flight together */
    double streams;               /* lines in flight of a sequence, which the prefetcher fetches */
};

struct config {
    unsigned nodes, cpus_per_node, cpus;
    uint64_t node_bytes;
    unsigned distance[NODES][NODES];
    uint64_t grain; /* bytes of a page of the output, 0: none */
    const char *file;
};
extern struct config config;
extern struct model model;

static inline unsigned node_of_cpu(unsigned cpu) { return cpu / config.cpus_per_node; }

/* Lines from memory by node of the CPU and node of the memory, and what else crosses. */
typedef uint64_t matrix[NODES][NODES];
struct counts {
    uint64_t loads, stores, instructions;
    matrix by_loads, by_stores; /* lines fetched from memory */
    matrix written_back;        /* lines that a cache gave back to memory */
    matrix forwarded;           /* lines that came from a cache of another node, by node of that cache */
};
extern struct counts counts;
extern bool counting;

/* pages.c */
struct page {
    uint64_t number;                   /* address / grain */
    uint64_t loads, stores, local;     /* accesses; lines from the own node */
    uint32_t lines_by[NODES], lines_at[NODES]; /* by node of the CPU, and of the memory */
};
struct page *page_of(uint64_t address);
void pages_clear(void);
/* Sorted by address; valid until the next page_of. */
struct page **pages_sorted(uint64_t *count);

/* caches.c */
void caches_make(void);
void caches_empty(void);
/* One access of the metered process that the first level does not hold. `line` counts lines of physical memory, node
 * by node without holes. */
void cache_access(unsigned cpu, uint64_t line, bool store, uint64_t address);
/* The first level; true if the access needs nothing else. */
bool cache_quick(unsigned cpu, uint64_t address, bool store);
void cache_forget_addresses(unsigned cpu);

/* clock.c */
void clock_reset(void);
/* Between these two time is measured; they may be called several times. */
void clock_start(void);
void clock_stop(void);
double clock_elapsed(void);
double clock_of(unsigned cpu);
void clock_instructions(unsigned cpu, unsigned count, bool pauses);
void clock_wait(unsigned cpu, double ns);
/* What `cpu` reads was written at this time. */
void clock_not_before(unsigned cpu, double time);
void clock_memory(unsigned cpu, unsigned node, uint64_t line);
void clock_write_back(unsigned cpu, unsigned node);

/* output.c */
bool output_open(void);
void output_run(const char *name, uint64_t load_bias, bool complete);
void output_error(const char *what);
#endif
