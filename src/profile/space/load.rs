//! Loading and unloading of modules in a process.

use super::modules::{LoadedModule, MappedFile, strip_deleted};
use super::process;
use super::processes::{Space, process_in};

impl Space {
    /// Loads the file of a mapping if it is an ELF file.
    pub(super) fn load(&mut self, slot: usize, time_ns: u64, executable: bool, mapped: MappedFile<'_>) {
        let Some(module) = self.modules.open(mapped) else { return };
        let file = &self.modules.file(module).elf;
        let Some((bias, (low, high))) = file.bias(mapped.low, mapped.pgoff, executable).zip(file.extent()) else {
            return;
        };
        let (low, high) = (low.wrapping_add(bias), high.wrapping_add(bias));
        let instance = self.modules.instance(LoadedModule { module, bias });
        let p = process_in(&mut self.slots, slot);
        if low >= high || p.loaded.get(mapped.low).is_some_and(|s| s.value == instance) {
            return;
        }
        self.unload(slot, time_ns, low, high);
        let p = process_in(&mut self.slots, slot);
        p.loaded.insert(low, high, instance);
        p.loaded_ns.insert(instance, time_ns);
        p.sites.clear();
        self.cache.forget(p.serial, low, high);
    }

    /// Unloads the modules that a new mapping replaces (dlclose is not reported): those it overlaps, unless it is a
    /// part of the module itself, its .bss, or code mapped over its code (huge pages for text).
    pub(super) fn unload_replaced(&mut self, slot: usize, time_ns: u64, low: u64, high: u64, prot: u32, path: &str) {
        let p = process_in(&mut self.slots, slot);
        let spans: Vec<_> = p.loaded.overlapping(low, high).collect();
        for span in spans {
            let LoadedModule { module, bias } = self.modules.get(span.value);
            let file = &self.modules.file(module).elf;
            let same_file = file.path == strip_deleted(path);
            let bss = file.bss_start().map_or(span.high, |v| v.wrapping_add(bias));
            let inside = span.low <= low && high <= span.high;
            let code = inside && prot & libc::PROT_EXEC as u32 != 0;
            let anonymous = process::is_anonymous(path) || path == "[heap]";
            if !(same_file || anonymous && (low >= bss || code)) {
                self.unload(slot, time_ns, span.low, span.high);
            }
        }
    }

    pub(super) fn unload(&mut self, slot: usize, time_ns: u64, low: u64, high: u64) {
        let p = process_in(&mut self.slots, slot);
        for span in p.loaded.remove_overlapping(low, high) {
            let (objects, serial) = (&mut self.objects, p.serial);
            p.globals.retain(|&(instance, _), &mut id| {
                if instance == span.value {
                    objects.end(id, serial, time_ns);
                }
                instance != span.value
            });
            p.sites.clear();
            self.cache.forget(p.serial, span.low, span.high);
        }
    }
}
