/* What the meter uses of qemu 7.2 (Debian 12). Debian does not package qemu-plugin.h, so it is declared here.
 *
 * The second part is not of the plugin interface: in 7.2 a plugin cannot read registers, but the binary exports the
 * functions of the debugger stub. They are weak: without them qemu_plugin_install says so and the lab fails.
 */
#ifndef QEMU_PLUGIN_H
#define QEMU_PLUGIN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t plugin_id;
struct tb;
struct insn;
struct hwaddr;
enum { PLUGIN_API_VERSION = 1, CB_NO_REGS = 0, MEM_READ_AND_WRITE = 3 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct tb *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct tb *, void (*)(unsigned, void *), int flags, void *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct insn *, void (*)(unsigned, void *), int flags, void *);
extern void qemu_plugin_register_vcpu_mem_cb(struct insn *, void (*)(unsigned, uint32_t, uint64_t, void *), int flags,
                                             int rw, void *);
extern void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
extern size_t qemu_plugin_tb_n_insns(const struct tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct tb *);
extern struct insn *qemu_plugin_tb_get_insn(const struct tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct insn *);
extern size_t qemu_plugin_insn_size(const struct insn *);
extern bool qemu_plugin_mem_is_store(uint32_t);
extern struct hwaddr *qemu_plugin_get_hwaddr(uint32_t, uint64_t);
extern bool qemu_plugin_hwaddr_is_io(const struct hwaddr *);
extern uint64_t qemu_plugin_hwaddr_phys_addr(const struct hwaddr *);

typedef struct {
    uint8_t *data;
    unsigned len;
} byte_array; /* glib's GByteArray */
extern byte_array *g_byte_array_sized_new(unsigned);
extern byte_array *g_byte_array_set_size(byte_array *, unsigned);
#define WEAK __attribute__((weak))
extern void *qemu_get_cpu(int index) WEAK;
extern int x86_cpu_gdb_read_register(void *cpu, byte_array *, int number) WEAK;
extern int cpu_memory_rw_debug(void *cpu, uint64_t address, void *, uint64_t length, bool is_write) WEAK;
/* Ends the turn of a CPU: the next one runs. */
extern void cpu_exit(void *cpu) WEAK;
/* Numbers of target/i386/gdbstub.c, 64-bit: the 16 general registers in the order of gpr_map, then rip, eflags, nine of
 * segments, then cr0, cr2, cr3. */
enum { REG_RDX = 3, REG_RSI = 4, REG_RDI = 5, REG_RSP = 7, REG_CR3 = 29 };
#endif
