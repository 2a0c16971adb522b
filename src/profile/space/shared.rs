//! Memory that several processes may map: shared mappings of files, memfd, /dev/shm, System V, MAP_SHARED |
//! MAP_ANONYMOUS.
//!
//! The kernel keeps each such memory as one file, so that its inode and an offset name a page wherever a process maps
//! it. The memory is one object of the run, with the addresses that its first mapping gave it: [`View::place`] turns
//! an address of any other mapping into these. Private mappings are not among them: their pages become copies.
//!
//! Memory that no process maps any more may come back when it has a name or a descriptor; then it is the same
//! object, with the pages that were touched before. So many are remembered: [`MOST_UNMAPPED`].

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::process::is_anonymous;
use crate::profile::perf::{Inode, Mapping};
use crate::profile::records::{Object, ObjectId};

/// Address space of the objects of shared memory, which belong to no process.
pub const SHARED: u32 = u32::MAX;

/// Memory without a mapping that is remembered; with its object some 300 bytes each.
const MOST_UNMAPPED: usize = 1 << 14;

/// Offsets in a file from which on addresses could wrap; none is that large (MAX_LFS_FILESIZE of Linux is 2^63).
const END_OF_OFFSETS: u64 = 1 << 62;

/// A mapping of shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Which memory.
    pub memory: u32,
    /// What turns an address of the mapping into one of the object, added with wrapping.
    pub shift: u64,
}

impl View {
    /// The address in the object of an address of the mapping.
    pub fn place(self, addr: u64) -> u64 {
        addr.wrapping_add(self.shift)
    }
}

#[derive(Debug)]
struct Memory {
    key: Key,
    generation: Option<u64>,
    /// Address of offset 0 in the object.
    start: u64,
    object: Option<ObjectId>,
    /// The object, while no process maps the memory.
    ended: Option<Box<Object>>,
    /// Pieces of mappings, of all processes.
    pieces: u64,
    /// Whether it exists without a mapping: it has a name or may have a descriptor.
    stays: bool,
    /// Whether a call of the program that mapped it was reported.
    is_allocated: bool,
}

/// Device and number of an inode, and whether it is a System V segment: these are numbered apart.
type Key = ((u32, u32), u64, bool);

/// All shared memory of a run.
#[derive(Debug, Default)]
pub struct SharedMemory {
    by_key: FxHashMap<Key, u32>,
    all: FxHashMap<u32, Memory>,
    next: u32,
    /// Those whose last mapping went, in this order, some of which are mapped again.
    unmapped: VecDeque<u32>,
    /// Those forgotten since the last call of [`SharedMemory::take_forgotten`].
    forgotten: Vec<u32>,
}

impl SharedMemory {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What a mapping shows; none unless it is shared memory that its inode tells apart.
    pub fn view(&mut self, mapping: &Mapping) -> Option<View> {
        let Inode { device, number, generation } = mapping.shared.filter(|_| is_told_by_inode(&mapping.path))?;
        if mapping.pgoff.checked_add(mapping.len)? > END_OF_OFFSETS {
            return None;
        }
        let key = (device, number, mapping.path.starts_with("/SYSV"));
        let known = self.by_key.get(&key).and_then(|id| Some((*id, self.all.get_mut(id)?)));
        let same = |memory: &Memory| memory.generation.zip(generation).is_none_or(|(a, b)| a == b);
        let (id, start) = match known.filter(|(_, memory)| same(memory)) {
            Some((id, memory)) => {
                memory.generation = memory.generation.or(generation);
                (id, memory.start)
            }
            None => {
                let start = mapping.addr.saturating_sub(mapping.pgoff);
                (self.add(key, generation, start, !is_anonymous(&mapping.path)), start)
            }
        };
        Some(View { memory: id, shift: start.wrapping_add(mapping.pgoff).wrapping_sub(mapping.addr) })
    }

    fn add(&mut self, key: Key, generation: Option<u64>, start: u64, stays: bool) -> u32 {
        let id = self.next;
        self.next += 1;
        self.by_key.insert(key, id);
        let (object, ended) = (None, None);
        self.all.insert(id, Memory { key, generation, start, object, ended, pieces: 0, stays, is_allocated: false });
        id
    }

    /// The object of a memory, and what it was when the last mapping went, if that was so.
    pub fn object(&mut self, memory: u32) -> Option<(ObjectId, Option<Box<Object>>)> {
        let memory = self.all.get_mut(&memory)?;
        Some((memory.object?, memory.ended.take()))
    }

    /// Sets the object of a memory.
    pub fn set_object(&mut self, memory: u32, object: ObjectId) {
        if let Some(memory) = self.all.get_mut(&memory) {
            memory.object = Some(object);
        }
    }

    /// Notes that a call of the program maps a memory; true for the first one.
    pub fn allocate(&mut self, memory: u32) -> bool {
        self.all.get_mut(&memory).is_none_or(|memory| !std::mem::replace(&mut memory.is_allocated, true))
    }

    /// One more piece of a mapping.
    pub fn add_piece(&mut self, memory: u32) {
        if let Some(memory) = self.all.get_mut(&memory) {
            memory.pieces += 1;
        }
    }

    /// One piece of a mapping went; returns the object if it was the last.
    pub fn remove_piece(&mut self, memory: u32) -> Option<ObjectId> {
        let of = self.all.get_mut(&memory)?;
        of.pieces = of.pieces.saturating_sub(1);
        if of.pieces > 0 {
            return None;
        }
        let object = of.object;
        if !of.stays {
            self.forget(memory);
            return object;
        }
        self.unmapped.push_back(memory);
        if self.unmapped.len() > MOST_UNMAPPED
            && let Some(oldest) = self.unmapped.pop_front()
            && self.all.get(&oldest).is_some_and(|memory| memory.pieces == 0)
        {
            self.forget(oldest);
        }
        object
    }

    /// Keeps the object of a memory without a mapping, in case it comes back.
    pub fn keep_ended(&mut self, memory: u32, object: Object) {
        if let Some(memory) = self.all.get_mut(&memory) {
            memory.ended = Some(Box::new(object));
        }
    }

    fn forget(&mut self, memory: u32) {
        let Some(Memory { key, .. }) = self.all.remove(&memory) else { return };
        if self.by_key.get(&key) == Some(&memory) {
            self.by_key.remove(&key);
        }
        self.forgotten.push(memory);
    }

    /// Memory that is gone, or was forgotten, since the last call.
    pub fn take_forgotten(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.forgotten)
    }
}

/// Whether a file with this path has one content for all its mappings. A device may show other memory in each, and so
/// may what the kernel gives out as `anon_inode:[...]`, all with one inode.
fn is_told_by_inode(path: &str) -> bool {
    const OTHERS: [&str; 4] = ["/dev/", "/proc/", "/sys/", "/dmabuf"];
    const FILES: [&str; 2] = ["/dev/shm/", "/dev/hugepages/"];
    let begins = |list: &[&str]| list.iter().any(|start| path.starts_with(start));
    is_anonymous(path) || path.starts_with('/') && (begins(&FILES) || !begins(&OTHERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(addr: u64, pgoff: u64, number: u64, path: &str) -> Mapping {
        let shared = Some(Inode { device: (0, 1), number, generation: Some(1) });
        Mapping { addr, len: 0x1000, pgoff, prot: 3, path: path.into(), shared }
    }

    #[test]
    fn a_page_has_one_address_in_all_mappings() {
        let mut s = SharedMemory::default();
        let first = s.view(&mapping(0x70_0000, 0x2000, 5, "/dev/shm/a")).expect("shared");
        assert_eq!(first.place(0x70_0123), 0x70_0123);
        let second = s.view(&mapping(0x10_0000, 0x3000, 5, "/dev/shm/a")).expect("shared");
        assert_eq!((second.memory, second.place(0x10_0123)), (first.memory, 0x70_1123));
        // Before the address 0 there is nothing: the file begins there.
        let far = s.view(&mapping(0x1000, 0x5000, 6, "/data")).expect("shared");
        assert_eq!(far.place(0x1010), 0x5010);
        assert_ne!(far.memory, first.memory);
    }

    #[test]
    fn what_the_inode_does_not_tell_apart_is_none() {
        let mut s = SharedMemory::default();
        for path in ["anon_inode:[perf_event]", "/dev/nvidia0", "/sys/bus/pci/x", "/dmabuf:", "socket:[7]", "[vvar]"] {
            assert_eq!(s.view(&mapping(0x1000, 0, 5, path)), None, "{path}");
        }
        let private = Mapping { shared: None, ..mapping(0x1000, 0, 5, "/dev/shm/a") };
        assert_eq!(s.view(&private), None);
        assert_eq!(s.view(&mapping(0x1000, u64::MAX - 10, 5, "/dev/shm/a")), None);
        assert!(s.is_empty());
        for path in ["/dev/zero (deleted)", "/memfd:a (deleted)", "/SYSV00000000 (deleted)", "/tmp/a", "/anon_hugepage"]
        {
            assert!(s.view(&mapping(0x1000, 0, 5, path)).is_some(), "{path}");
        }
    }

    #[test]
    fn a_number_that_is_used_again_is_other_memory() {
        let mut s = SharedMemory::default();
        let of = |s: &mut SharedMemory, generation, path: &str| {
            let shared = Some(Inode { device: (0, 1), number: 5, generation });
            s.view(&Mapping { shared, ..mapping(0x1000, 0, 5, path) }).expect("shared").memory
        };
        let first = of(&mut s, None, "/memfd:a");
        assert_eq!(of(&mut s, Some(1), "/memfd:a"), first, "/proc does not tell the generation");
        assert_eq!(of(&mut s, Some(1), "/memfd:a"), first);
        let second = of(&mut s, Some(2), "/memfd:a");
        assert_ne!(second, first);
        assert_ne!(of(&mut s, Some(2), "/SYSV00000000 (deleted)"), second, "segments are numbered apart");
    }

    #[test]
    fn memory_without_a_name_ends_with_its_last_mapping() {
        let mut s = SharedMemory::default();
        let of = |s: &mut SharedMemory, path| s.view(&mapping(0x1000, 0, 5, path)).expect("shared").memory;
        let anonymous = of(&mut s, "/dev/zero (deleted)");
        s.set_object(anonymous, 7);
        s.add_piece(anonymous);
        s.add_piece(anonymous);
        assert_eq!(s.remove_piece(anonymous), None);
        assert_eq!(s.remove_piece(anonymous), Some(7));
        assert_eq!(s.take_forgotten(), [anonymous]);
        let named = of(&mut s, "/dev/shm/a");
        assert_ne!(named, anonymous);
        s.add_piece(named);
        s.remove_piece(named);
        assert_eq!((of(&mut s, "/dev/shm/a"), s.take_forgotten()), (named, vec![]));
        // Bounded, whatever a program makes.
        for number in 10..10 + MOST_UNMAPPED as u64 {
            let memory = s.view(&mapping(0x1000, 0, number, "/dev/shm/b")).expect("shared").memory;
            s.add_piece(memory);
            s.remove_piece(memory);
        }
        assert_eq!((s.all.len(), s.take_forgotten()), (MOST_UNMAPPED, vec![named]));
    }
}
