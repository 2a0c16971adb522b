/* A modelled time for each CPU, in ns. It advances with the instructions that the CPU executes for the metered process
 * and with its waiting for lines; what the kernel does costs nothing.
 *
 * CPUs meet through memory, as the program's threads do: who reads a line that another CPU wrote cannot be earlier than
 * the write. So a barrier ends for all when the last has come, whichever way it is built, and a run takes as long as
 * its longest chain. Waiting in a loop with `pause` costs nothing by itself.
 *
 * The emulator runs one CPU after the other, so a CPU asks for lines at modelled times before those of its predecessor.
 * A controller therefore has a calendar: how many lines it moves in each window of time. A request takes the first
 * window from its own time on with room left, and the CPU waits until then.
 */
#include "meter.h"

#include <stdlib.h>
#include <string.h>

/* Instructions after a `pause` that still belong to the waiting loop, unless that loop was left. */
enum { LOOP_OF_PAUSE = 64, STREAMS = 16 };
static const double WINDOW_NS = 1000;
/* Beyond 4 s of modelled time the calendar begins anew, at most 4 million windows a node. */
enum { WINDOWS = 4 << 20 };

struct cpu {
    double time;
    unsigned pending;
    bool spinning;
    uint64_t streams[STREAMS]; /* last line of each sequence that is followed */
    unsigned oldest;
};
struct controller {
    uint32_t *lines; /* of each window */
    uint32_t *next;  /* a full window: where to look on */
};

static struct cpu cpus[CPUS];
static struct controller controllers[NODES];
static double start, elapsed;
static bool running;

static double latest(void) {
    double time = 0;
    for (unsigned i = 0; i < config.cpus; i++)
        if (cpus[i].time > time) time = cpus[i].time;
    return time;
}

void clock_reset(void) { elapsed = 0, running = false; }

void clock_start(void) {
    start = latest(), running = true;
    for (unsigned i = 0; i < config.cpus; i++) cpus[i].time = start, cpus[i].spinning = false;
}

void clock_stop(void) { elapsed += latest() - start, running = false; }
double clock_elapsed(void) { return elapsed + (running ? latest() - start : 0); }
double clock_of(unsigned cpu) { return cpus[cpu].time; }
void clock_wait(unsigned cpu, double ns) { cpus[cpu].time += ns; }
void clock_not_before(unsigned cpu, double time) {
    if (cpus[cpu].time < time) cpus[cpu].time = time;
}

void clock_instructions(unsigned cpu, unsigned count, bool pauses) {
    struct cpu *c = &cpus[cpu];
    if (pauses) {
        c->spinning = true, c->pending = 0;
        return;
    }
    if (c->spinning) {
        c->pending += count;
        if (c->pending <= LOOP_OF_PAUSE) return;
        count = c->pending, c->spinning = false;
    }
    c->time += count * model.instruction_ns;
}

/* The window that the request got. */
static uint64_t book(unsigned node, uint64_t window) {
    struct controller *c = &controllers[node];
    uint32_t room = (uint32_t)(model.gbps * config.cpus_per_node * WINDOW_NS / LINE);
    if (!room) room = 1;
    if (!c->lines) {
        c->lines = calloc(WINDOWS, sizeof *c->lines), c->next = calloc(WINDOWS, sizeof *c->next);
        if (!c->lines || !c->next) abort();
    }
    uint64_t base = window - window % WINDOWS, at = window % WINDOWS, from = at;
    while (at < WINDOWS && c->lines[at] >= room) at = c->next[at] > at ? c->next[at] : at + 1;
    if (at == WINDOWS) return base + at;
    c->lines[at]++;
    /* Every full window on the way leads straight to where there was room. */
    for (uint64_t i = from; i < at;) {
        uint64_t on = c->next[i] > i ? c->next[i] : i + 1;
        c->next[i] = at;
        i = on;
    }
    return base + at;
}

/* Whether the line continues a sequence, up or down, with a stride of at most two lines. */
static bool follows(struct cpu *c, uint64_t line) {
    for (unsigned i = 0; i < STREAMS; i++) {
        uint64_t apart = line > c->streams[i] ? line - c->streams[i] : c->streams[i] - line;
        if (apart <= 2) {
            c->streams[i] = line;
            return true;
        }
    }
    c->streams[c->oldest++ % STREAMS] = line;
    return false;
}

void clock_memory(unsigned cpu, unsigned node, uint64_t line) {
    struct cpu *c = &cpus[cpu];
    double latency = model.memory_ns * config.distance[node_of_cpu(cpu)][node] / 10;
    uint64_t asked = (uint64_t)(c->time / WINDOW_NS), got = book(node, asked);
    if (got > asked) c->time = got * WINDOW_NS;
    c->time += latency / (follows(c, line) ? model.streams : model.overlap);
}

void clock_write_back(unsigned cpu, unsigned node) { book(node, (uint64_t)(cpus[cpu].time / WINDOW_NS)); }
