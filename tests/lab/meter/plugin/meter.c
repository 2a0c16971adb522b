/* The meter of the NUMA lab: a TCG plugin of qemu-system-x86_64 7.2 that counts which node's CPUs fetch lines from
 * which node's memory, for one unmodified process from a marker to a marker (marker.h, mark.c).
 *
 *   qemu-system-x86_64 -plugin meter.so,out=FILE,nodes=4,cpus=2,mb=512,distances=10:20:20:20:20:10:...
 *
 * It sees every access of user-mode code, with CPU, virtual and physical address. It does not see what the kernel
 * accesses on behalf of the process, and knows nothing of NumaMMA. Only for qemu with one thread for all CPUs.
 */
#define _GNU_SOURCE
#include "meter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "marker.h"
#include "qemu_plugin.h"

#define FOR_QEMU __attribute__((visibility("default")))

FOR_QEMU int qemu_plugin_version = PLUGIN_API_VERSION;

struct config config = {
    .nodes = 1, .cpus_per_node = 1, .node_bytes = 512ull << 20, .grain = 4096, .file = "meter.json",
};
struct model model = {
    .l2_bytes = 1 << 20, .l2_ways = 16, .llc_bytes = 1408 << 10, .llc_ways = 11,
    .instruction_ns = 0.3, .l2_ns = 1.5, .llc_ns = 28, .memory_ns = 90, .gbps = 6.4, .overlap = 4, .streams = 10,
};
struct counts counts;
bool counting;

static const uint64_t USER_END = 1ull << 47;
static const uint8_t MARKER[] = MARKER_BYTES;
/* A physical address of 7.2 holds the region's own address twice: a node begins at twice the bytes of those before it.
 * MARK_PAGE tells which it is. */
static unsigned address_factor = 2;
static struct marked_run run;
static uint64_t metered;      /* page table of the metered process, 0: none */
static bool inside[CPUS];     /* the CPU runs the metered process */
static bool unsure[CPUS];     /* the kernel ran since */
/* The CPUs run one after the other. Turns of a modelled microsecond instead of qemu's 0.1 s keep what they do in about
 * the order of the modelled times. */
static const double TURN_NS = 1000;
static double turn_ends[CPUS];
static uint64_t checked_page; /* of MARK_PAGE */
static unsigned checked_node;
static bool finished;
/* Calls of the functions of `during` that have not returned: where to, and the stack pointer after it. */
enum { CALLS = 256 };
static struct { uint64_t to, stack; } calls[CALLS];
static unsigned open_calls;

static uint64_t reg(unsigned cpu, int number) {
    static byte_array *bytes;
    uint64_t value = 0;
    if (!bytes) bytes = g_byte_array_sized_new(16);
    g_byte_array_set_size(bytes, 0);
    x86_cpu_gdb_read_register(qemu_get_cpu(cpu), bytes, number);
    memcpy(&value, bytes->data, bytes->len < 8 ? bytes->len : 8);
    return value;
}

/* Without the address-space identifier in the low bits and the flag in the highest. */
static uint64_t page_table(unsigned cpu) { return reg(cpu, REG_CR3) & 0x7ffffffffffff000; }

static bool node_of_address(uint64_t address, unsigned factor, unsigned *node, uint64_t *line) {
    *node = address / (factor * config.node_bytes);
    uint64_t offset = address % (factor * config.node_bytes);
    *line = (*node * config.node_bytes + offset) / LINE;
    return *node < config.nodes && offset < config.node_bytes;
}

static void check_page(uint64_t address) {
    unsigned node;
    uint64_t line;
    checked_page = 0;
    if (node_of_address(address, address_factor, &node, &line) && node == checked_node) return;
    unsigned other = 3 - address_factor;
    if (node_of_address(address, other, &node, &line) && node == checked_node) {
        address_factor = other;
        return;
    }
    output_error("a page that the kernel put on one node is in the memory of another: this qemu numbers its memory in "
                 "a way that the meter does not know");
    exit(1);
}

static void access_memory(unsigned cpu, uint32_t info, uint64_t address, void *unused) {
    if (!inside[cpu] && !checked_page) return;
    /* 7.2 keeps a block's callbacks after an exception, and calls them for the kernel's next access by a helper. */
    if (address >= USER_END) return;
    bool store = qemu_plugin_mem_is_store(info);
    if (inside[cpu] && cache_quick(cpu, address, store)) return;
    struct hwaddr *where = qemu_plugin_get_hwaddr(info, address);
    if (!where || qemu_plugin_hwaddr_is_io(where)) return;
    uint64_t physical = qemu_plugin_hwaddr_phys_addr(where), line;
    unsigned node;
    if (checked_page && address / 4096 == checked_page) check_page(physical);
    if (!inside[cpu]) return;
    /* The rest is ROM and the like. */
    if (node_of_address(physical, address_factor, &node, &line)) cache_access(cpu, line, store, address);
}

static void from_kernel(unsigned cpu, void *unused) { unsure[cpu] = true; }

static void count_from_here(void) {
    memset(&counts, 0, sizeof counts);
    clock_start();
    counting = true;
}

/* A block of user-mode code, packed into a pointer: its address, number of instructions, whether it has a `pause`. */
enum { ADDRESS_SHIFT = 16, MAX_INSTRUCTIONS = 0x7fff };
#define PACKED(address, count, pauses) \
    ((void *)(uintptr_t)((address) << ADDRESS_SHIFT | (count) << 1 | (pauses)))

/* A call of a function of `during`, or the return from one. */
static void in_during(unsigned cpu, uint64_t address) {
    for (unsigned i = 0; i < open_calls; i++)
        if (calls[i].to == address && calls[i].stack == reg(cpu, REG_RSP)) {
            calls[i] = calls[--open_calls];
            if (!open_calls) counting = false, clock_stop();
            return;
        }
    for (unsigned i = 0; i < sizeof run.during / sizeof *run.during; i++) {
        if (!run.during[i] || address != run.during[i] || open_calls == CALLS) continue;
        uint64_t stack = reg(cpu, REG_RSP), to;
        if (cpu_memory_rw_debug(qemu_get_cpu(cpu), stack, &to, sizeof to, false) != 0) return;
        calls[open_calls].to = to, calls[open_calls].stack = stack + 8;
        if (!open_calls++) clock_start(), counting = finished = true;
        return;
    }
}

/* A function is entered by a jump or a call, so a block begins there. */
static void at_block(unsigned cpu, uint64_t address) {
    if (run.during[0]) {
        in_during(cpu, address);
        return;
    }
    if (finished) return;
    if (!counting && run.from && address == run.from) {
        count_from_here();
    } else if (counting && run.until && address == run.until) {
        counting = false, finished = true;
        clock_stop();
    }
}

static void execute_block(unsigned cpu, void *block) {
    if (!metered) return;
    if (unsure[cpu]) {
        unsure[cpu] = false;
        inside[cpu] = page_table(cpu) == metered;
        /* The kernel may have moved pages. */
        if (inside[cpu]) cache_forget_addresses(cpu);
    }
    if (!inside[cpu]) return;
    at_block(cpu, (uintptr_t)block >> ADDRESS_SHIFT);
    unsigned count = (uintptr_t)block >> 1 & MAX_INSTRUCTIONS;
    if (counting) counts.instructions += count;
    clock_instructions(cpu, count, (uintptr_t)block & 1);
    if (clock_of(cpu) < turn_ends[cpu]) return;
    turn_ends[cpu] = clock_of(cpu) + TURN_NS;
    cpu_exit(qemu_get_cpu(cpu));
}

static void leave(bool complete) {
    if (!metered) return;
    output_run(run.name, run.load_bias, complete && (counting || finished));
    metered = 0, counting = finished = false;
    memset(inside, 0, sizeof inside);
}

static void read_run(unsigned cpu) {
    leave(false);
    if (cpu_memory_rw_debug(qemu_get_cpu(cpu), reg(cpu, REG_RSI), &run, sizeof run, false) != 0) {
        output_error("the marked run could not be read from the guest's memory");
        exit(1);
    }
    run.name[sizeof run.name - 1] = 0;
}

static void enter(unsigned cpu) {
    metered = page_table(cpu);
    open_calls = 0;
    inside[cpu] = true;
    memset(unsure, true, sizeof unsure);
    pages_clear();
    caches_empty();
    memset(&counts, 0, sizeof counts);
    clock_reset();
    if (!run.from && !run.during[0]) count_from_here();
}

static void marker(unsigned cpu, void *unused) {
    switch (reg(cpu, REG_RDI)) {
    case MARK_PAGE:
        checked_page = reg(cpu, REG_RSI) / 4096, checked_node = reg(cpu, REG_RDX);
        break;
    case MARK_RUN: read_run(cpu); break;
    case MARK_ENTER: enter(cpu); break;
    case MARK_LEAVE: leave(true); break;
    }
}

static bool starts_with(struct insn *insn, const void *bytes, size_t length) {
    return qemu_plugin_insn_size(insn) >= length && memcmp(qemu_plugin_insn_data(insn), bytes, length) == 0;
}

static void translate(plugin_id id, struct tb *block) {
    size_t n = qemu_plugin_tb_n_insns(block);
    if (qemu_plugin_tb_vaddr(block) >= USER_END) {
        /* The last instruction of the kernel before user-mode code: iretq or sysretq. */
        struct insn *last = qemu_plugin_tb_get_insn(block, n - 1);
        if (starts_with(last, "\x48\xcf", 2) || starts_with(last, "\x48\x0f\x07", 3))
            qemu_plugin_register_vcpu_insn_exec_cb(last, from_kernel, CB_NO_REGS, NULL);
        return;
    }
    bool pauses = false;
    for (size_t i = 0; i < n; i++) {
        struct insn *insn = qemu_plugin_tb_get_insn(block, i);
        if (starts_with(insn, MARKER, sizeof MARKER))
            qemu_plugin_register_vcpu_insn_exec_cb(insn, marker, CB_NO_REGS, NULL);
        pauses |= starts_with(insn, "\xf3\x90", 2);
        qemu_plugin_register_vcpu_mem_cb(insn, access_memory, CB_NO_REGS, MEM_READ_AND_WRITE, NULL);
    }
    void *packed = PACKED(qemu_plugin_tb_vaddr(block), n, pauses);
    qemu_plugin_register_vcpu_tb_exec_cb(block, execute_block, CB_NO_REGS, packed);
}

static void at_exit(plugin_id id, void *unused) { leave(false); }

static bool read_distances(const char *list) {
    for (unsigned i = 0; i < config.nodes; i++)
        for (unsigned j = 0; j < config.nodes; j++) {
            char *end;
            config.distance[i][j] = strtoul(list, &end, 10);
            if (end == list) return false;
            list = *end == ':' ? end + 1 : end;
        }
    return true;
}

/* A number with K, M or G. */
static uint64_t bytes(const char *s) {
    char *end;
    double value = strtod(s, &end);
    const char *unit = *end ? strchr("KMG", *end) : NULL;
    return value * (unit ? 1ull << (10 * (unit - "KMG" + 1)) : 1);
}

static bool read_option(const char *key, const char *value) {
    struct { const char *key; uint64_t *to; } sizes[] = {
        { "l2", &model.l2_bytes }, { "l2-ways", &model.l2_ways }, { "llc", &model.llc_bytes },
        { "llc-ways", &model.llc_ways }, { "grain", &config.grain },
    };
    struct { const char *key; double *to; } numbers[] = {
        { "instruction-ns", &model.instruction_ns }, { "l2-ns", &model.l2_ns }, { "llc-ns", &model.llc_ns },
        { "memory-ns", &model.memory_ns }, { "gbps", &model.gbps }, { "overlap", &model.overlap },
        { "streams", &model.streams },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(key, sizes[i].key)) return *sizes[i].to = bytes(value), true;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(key, numbers[i].key)) return (*numbers[i].to = strtod(value, NULL)) > 0;
    if (!strcmp(key, "out")) return config.file = strdup(value), true;
    if (!strcmp(key, "nodes")) return (config.nodes = atoi(value)) - 1 < NODES;
    if (!strcmp(key, "cpus")) return (config.cpus_per_node = atoi(value)) - 1 < CPUS;
    if (!strcmp(key, "mb")) return (config.node_bytes = strtoull(value, NULL, 10) << 20) > 0;
    if (!strcmp(key, "distances")) return read_distances(value);
    return false;
}

FOR_QEMU int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    if (!qemu_get_cpu || !x86_cpu_gdb_read_register || !cpu_memory_rw_debug || !cpu_exit) {
        fputs("meter: this qemu does not export what the meter needs; Debian 12's does\n", stderr);
        return 1;
    }
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value) *value++ = 0;
        if (!value || !read_option(argv[i], value)) {
            fprintf(stderr, "meter: unknown option or wrong value: %s\n", argv[i]);
            return 1;
        }
    }
    config.cpus = config.nodes * config.cpus_per_node;
    if (config.cpus > CPUS || !config.distance[0][0]) {
        fputs("meter: nodes=, cpus= (at most 64 in all) and, after these, distances= are needed\n", stderr);
        return 1;
    }
    if (!output_open()) {
        fprintf(stderr, "meter: cannot write %s\n", config.file);
        return 1;
    }
    caches_make();
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
