//! Whether an emulator makes up the CPUs of this machine: what they claim of their caches, and where their samples lie,
//! then says nothing about hardware.

use std::fs;

/// Models of CPUs of QEMU itself begin so in /proc/cpuinfo, emulated or not (`x86_cpu_def` of target/i386/cpu.c). They
/// list the same made-up caches on every machine.
const QEMU_MODEL: &str = "QEMU";
/// `CPU implementer` of QEMU's own model on arm64, which is reserved for software (`aarch64_max_tcg_initfn` of
/// target/arm/tcg/cpu64.c; Arm Architecture Reference Manual, MIDR_EL1).
const SOFTWARE_IMPLEMENTER: &str = "0x00";

/// Whether QEMU's emulator executes this program, by the name of the hypervisor that it announces (leaf 0x4000_0000, in
/// `cpu_x86_cpuid` of target/i386/cpu.c).
pub fn executes_this_program() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::__cpuid;
        /// Bit of leaf 1 that says that there is a hypervisor.
        const HYPERVISOR: u32 = 1 << 31;
        let has_hypervisor = __cpuid(1).ecx & HYPERVISOR != 0;
        let leaf = __cpuid(0x4000_0000);
        let name: Vec<u8> = [leaf.ebx, leaf.ecx, leaf.edx].into_iter().flat_map(u32::to_le_bytes).collect();
        has_hypervisor && name == b"TCGTCGTCGTCG"
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether the caches that this machine's kernel lists are those of a made-up CPU.
pub fn makes_up_caches() -> bool {
    executes_this_program() || is_made_up(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

/// Whether a text of /proc/cpuinfo names a CPU that exists in emulators only.
fn is_made_up(cpuinfo: &str) -> bool {
    cpuinfo.lines().filter_map(|line| line.split_once(':')).any(|(key, value)| match key.trim() {
        "model name" => value.trim().starts_with(QEMU_MODEL),
        "CPU implementer" => value.trim() == SOFTWARE_IMPLEMENTER,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_emulators_are_told_from_real_ones() {
        for text in [
            "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: QEMU TCG CPU version 2.5+\n",
            "model name\t: QEMU Virtual CPU version 2.5+\n",
            "processor\t: 0\nCPU implementer\t: 0x00\nCPU part\t: 0x051\n",
        ] {
            assert!(is_made_up(text), "{text}");
        }
        for text in [
            "model name\t: Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz\nflags\t\t: fpu hypervisor\n",
            "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n",
            "",
        ] {
            assert!(!is_made_up(text), "{text}");
        }
    }
}
