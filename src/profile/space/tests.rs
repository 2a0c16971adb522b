use super::*;
use crate::profile::records::{CallSite, Instance, Object, ObjectKind, Resized, SiteCount};

const PID: u32 = 0x7fff_fff0; // above every pid_max: no such process
const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;
const RW: u32 = (libc::PROT_READ | libc::PROT_WRITE) as u32;
const HEAP: Origin = Origin::Heap;

pub fn any_object() -> Object {
    Object {
        id: 0,
        kind: ObjectKind::Mapping,
        name: "x".into(),
        module: None,
        vaddr: 0,
        site: None,
        pid: 1,
        instance: Instance { base: 0, size: 1, born_ns: 0, died_ns: None, thread: None },
    }
}

/// What a reader of the profile would know.
#[derive(Default)]
struct Seen {
    objects: Vec<Object>,
    sites: Vec<CallSite>,
    counts: Vec<SiteCount>,
    resized: Vec<Resized>,
}

impl Seen {
    fn take(&mut self, space: &mut Space) -> &mut Seen {
        for record in space.take_records() {
            match record {
                Record::Objects(objects) => {
                    for o in objects {
                        assert!(o.id as usize <= self.objects.len(), "ids are dense");
                        assert!(o.site.is_none_or(|s| (s as usize) < self.sites.len()), "sites come before use");
                        match self.objects.get_mut(o.id as usize) {
                            Some(old) => *old = o,
                            None => self.objects.push(o),
                        }
                    }
                }
                Record::Sites(sites) => self.sites.extend(sites),
                Record::SiteCounts(counts) => {
                    for c in counts {
                        self.counts.retain(|old| old.site != c.site);
                        self.counts.push(c);
                    }
                }
                Record::Resized(resized) => self.resized.extend(resized),
                other => assert!(matches!(other, Record::Modules(_)), "{other:?}"),
            }
        }
        self
    }

    fn kind(&self, id: ObjectId) -> (ObjectKind, &str) {
        let o = &self.objects[id as usize];
        (o.kind, &o.name)
    }
}

fn space() -> Space {
    Space::new(PID, false)
}

pub fn mapped(addr: u64, len: u64, pgoff: u64, prot: u32, path: &str) -> Mapping {
    Mapping { addr, len, pgoff, prot, path: path.into(), shared: None }
}

fn anon(s: &mut Space, time: u64, low: u64, len: u64) {
    s.mmap(time, PID, &mapped(low, len, 0, RW, "//anon"));
}

#[test]
fn a_reused_address_belongs_to_the_object_alive() {
    let mut s = space();
    let mut seen = Seen::default();
    anon(&mut s, 0, 0x10_0000, MB);
    s.alloc(1, PID, 0, 0x10_0010, 8 * KB, &[0x1000], HEAP);
    let first = s.attribute(2, PID, 0, 0, 0x10_0010 + 8 * KB - 1);
    s.free(3, PID, 0x10_0010, 0, HEAP);
    let between = s.attribute(4, PID, 0, 0, 0x10_0010);
    s.alloc(5, PID, 1, 0x10_0010, 8 * KB, &[0x2000], HEAP);
    let second = s.attribute(6, PID, 0, 0, 0x10_0010);
    seen.take(&mut s);
    let life = |id: ObjectId| (seen.objects[id as usize].instance.born_ns, seen.objects[id as usize].instance.died_ns);
    assert_eq!(life(first), (1, Some(3)));
    assert_eq!(life(second), (5, None));
    assert_eq!(seen.objects[second as usize].instance.thread, Some(1));
    assert_eq!(seen.kind(between), (ObjectKind::Mapping, "//anon"));
}

#[test]
fn small_blocks_are_one_object_per_call_site() {
    let mut s = space();
    for i in 0..100 {
        s.alloc(i, PID, 0, 0x10_0000 + i * 64, 48, &[0x1000 + i % 2], HEAP);
    }
    let even = s.attribute(200, PID, 0, 0, 0x10_0000);
    let odd = s.attribute(200, PID, 0, 0, 0x10_0040);
    assert_ne!(even, odd);
    assert_eq!(s.attribute(200, PID, 0, 0, 0x10_0080 + 47), even);
    let gap = s.attribute(200, PID, 0, 0, 0x10_0080 + 48);
    s.free(201, PID, 0x10_0000, 0, HEAP);
    s.alloc(202, PID, 0, 0x10_0000, 48, &[0x1001], HEAP);
    assert_eq!(s.attribute(203, PID, 0, 0, 0x10_0000), odd);
    let mut seen = Seen::default();
    seen.take(&mut s);
    assert_eq!(seen.kind(even).0, ObjectKind::SmallHeap);
    assert_eq!(seen.kind(gap).0, ObjectKind::Unknown);
    let site = seen.objects[odd as usize].site.unwrap();
    let expected = SiteCount { site, instances: 51, bytes: 51 * 48, peak_bytes: 51 * 48, max_size: 48 };
    assert_eq!(seen.counts.iter().find(|c| c.site == site), Some(&expected));
}

#[test]
fn objects_cost_records_only_when_attributed() {
    let mut s = space();
    for i in 0..1000 {
        s.alloc(i, PID, 0, 0x10_0000 + i * 16 * KB, 8 * KB, &[0x1000], HEAP);
    }
    s.attribute(2000, PID, 0, 0, 0x10_0000 + 500 * 16 * KB);
    let mut seen = Seen::default();
    seen.take(&mut s);
    assert_eq!(seen.objects.len(), 1);
    assert_eq!(seen.counts[0].instances, 1000);
    for i in 0..1000 {
        s.free(3000 + i, PID, 0x10_0000 + i * 16 * KB, 0, HEAP);
    }
    seen.take(&mut s);
    assert_eq!((seen.objects.len(), seen.objects[0].instance.died_ns), (1, Some(3500)));
}

#[test]
fn a_lost_free_is_made_up_for() {
    let mut s = space();
    s.alloc(1, PID, 0, 0x10_0000, MB, &[1], HEAP);
    let old = s.attribute(2, PID, 0, 0, 0x10_8000);
    s.alloc(3, PID, 0, 0x10_4000, 100, &[2], HEAP);
    let new = s.attribute(4, PID, 0, 0, 0x10_4000);
    let hole = s.attribute(4, PID, 0, 0, 0x10_8000);
    let mut seen = Seen::default();
    seen.take(&mut s);
    assert_eq!(seen.objects[old as usize].instance.died_ns, Some(3));
    assert_eq!(seen.kind(new).0, ObjectKind::SmallHeap);
    assert_eq!(seen.kind(hole).0, ObjectKind::Unknown);
}

#[test]
fn stacks_lie_over_heap_and_heap_over_mappings() {
    let mut s = space();
    anon(&mut s, 0, 0x10_0000, MB);
    s.alloc(1, PID, 0, 0x12_0000, 256 * KB, &[1], HEAP);
    let heap = s.attribute(2, PID, 0, 0, 0x13_0000);
    s.thread_stack(3, PID, 4, 0x13_0000, 0x14_0000, "worker");
    let stack = s.attribute(4, PID, 0, 0, 0x13_0000);
    assert_eq!(s.attribute(4, PID, 0, 0, 0x12_ffff), heap);
    assert_eq!(s.attribute(4, PID, 0, 0, 0x14_0000), heap);
    s.thread_name(4, "solver");
    let mut seen = Seen::default();
    seen.take(&mut s);
    assert_eq!(seen.kind(heap).0, ObjectKind::Heap);
    assert_eq!(seen.kind(stack), (ObjectKind::Stack, "stack of solver"));
    assert_eq!(seen.objects[stack as usize].instance.thread, Some(4));
    // The same memory becomes the stack of the next thread.
    s.thread_stack(9, PID, 5, 0x13_0000, 0x14_0000, "next");
    assert_ne!(s.attribute(9, PID, 5, 0x13_8000, 0x13_0000), stack);
    assert_eq!(seen.take(&mut s).objects[stack as usize].instance.died_ns, Some(9));
}

#[test]
fn what_is_allocated_over_a_stack_ends_it() {
    let mut s = space();
    anon(&mut s, 0, 0x10_0000, 64 * KB);
    s.alloc(1, PID, 0, 0x10_4000, 100, &[1], HEAP);
    s.thread_stack(2, PID, 1, 0x10_0000, 0x10_f000, "t");
    let stack = s.attribute(3, PID, 0, 0, 0x10_4000);
    let tls = s.attribute(3, PID, 0, 0, 0x10_f000);
    // The thread ended, its memory was unmapped, and malloc mapped it again.
    s.alloc(4, PID, 0, 0x10_2010, 5000, &[1], HEAP);
    let block = s.attribute(5, PID, 0, 0, 0x10_2010);
    let rest = s.attribute(5, PID, 0, 0, 0x10_f000);
    let mut seen = Seen::default();
    seen.take(&mut s);
    assert_eq!((seen.kind(stack).0, seen.objects[stack as usize].instance.died_ns), (ObjectKind::Stack, Some(4)));
    assert_eq!((seen.kind(tls).0, seen.objects[tls as usize].instance.died_ns), (ObjectKind::Tls, Some(4)));
    assert_eq!((seen.kind(block).0, seen.kind(rest).0), (ObjectKind::Heap, ObjectKind::Mapping));
}

#[test]
fn tls_above_a_stack_is_told_from_it_and_from_other_mappings() {
    let mut s = space();
    anon(&mut s, 0, 0x10_0000, 0x10_2000);
    s.thread_stack(1, PID, 3, 0x10_1000, 0x20_0000, "t");
    let tls = s.attribute(2, PID, 3, 0x11_0000, 0x20_1800);
    anon(&mut s, 0, 0x50_0000, 0x100_0000);
    s.thread_stack(1, PID, 4, 0x50_1000, 0x60_0000, "u");
    let other = s.attribute(2, PID, 4, 0x51_0000, 0x60_1000);
    let mut seen = Seen::default();
    seen.take(&mut s);
    assert_eq!(seen.kind(tls), (ObjectKind::Tls, "TLS of t"));
    assert_eq!(seen.kind(other).0, ObjectKind::Mapping);
}

#[test]
fn without_announcement_the_stack_pointer_finds_the_stack() {
    let mut s = space();
    s.mmap(0, PID, &mapped(0x7ff0_0000, 128 * KB, 0, RW, "[stack]"));
    anon(&mut s, 0, 0x10_0000, 8 * MB);
    let main = s.attribute(1, PID, 0, 0x7ff1_0000, 0x7ff1_0008);
    let worker = s.attribute(1, PID, 1, 0x20_0000, 0x20_0010);
    // Another thread reads that stack, and a page fault comes without a stack pointer.
    assert_eq!(s.attribute(2, PID, 0, 0x7ff1_0000, 0x50_0000), worker);
    assert_eq!(s.attribute(2, PID, 0, 0, 0x7ff1_f000), main);
    // Growth: reported, and not reported yet.
    assert_eq!(s.attribute(3, PID, 0, 0x7ff1_0000, 0x7fef_f000), main);
    s.mmap(4, PID, &mapped(0x7fe0_0000, 0x12_0000, 0, RW, "[stack]"));
    assert_eq!(s.attribute(5, PID, 0, 0x7fe1_0000, 0x7fe0_0000), main);
    let mut seen = Seen::default();
    seen.take(&mut s);
    assert_eq!(seen.kind(main), (ObjectKind::Stack, "stack of thread 0"));
    assert_eq!(
        (seen.objects[main as usize].instance.base, seen.objects[main as usize].instance.size),
        (0x7fe0_0000, 0x12_0000)
    );
    assert_eq!(seen.kind(worker), (ObjectKind::Stack, "stack of thread 1"));
    // When the preload announces it after all, it stays the same object under its name.
    s.thread_stack(6, PID, 0, 0x7f80_0000, 0x7ff2_0000, "app");
    assert_eq!(s.attribute(7, PID, 0, 0x7ff1_0000, 0x7ff1_0000), main);
    assert_eq!(seen.take(&mut s).kind(main), (ObjectKind::Stack, "stack of app"));
}

#[test]
fn a_stack_pointer_in_the_programs_own_memory_makes_no_stack() {
    let mut s = space();
    anon(&mut s, 0, 0x10_0000, 8 * MB);
    s.alloc(1, PID, 0, 0x20_0000, 64 * KB, &[1], HEAP);
    let coroutine = s.attribute(2, PID, 0, 0x20_8000, 0x20_8008);
    let mut seen = Seen::default();
    assert_eq!(seen.take(&mut s).kind(coroutine).0, ObjectKind::Heap);
    assert_eq!(s.attribute(2, PID, 0, 0x20_8000, 0x10_0000), 1);
    assert_eq!(seen.take(&mut s).kind(1).0, ObjectKind::Mapping);
}

#[test]
fn hooked_mappings_carry_their_call_site_and_split() {
    let mut s = space();
    let mut seen = Seen::default();
    s.mmap(1, PID, &mapped(0x100_0000, MB, 0, RW, "/data/input"));
    s.alloc(2, PID, 0, 0x100_0000, MB, &[7], Origin::Mmap);
    anon(&mut s, 3, 0x200_0000, MB);
    s.alloc(4, PID, 0, 0x200_0000, MB, &[8], Origin::Mmap);
    let file = s.attribute(5, PID, 0, 0, 0x100_0000);
    let memory = s.attribute(5, PID, 0, 0, 0x20f_ffff);
    // Unmap the middle: both ends are the same object, the middle is nothing.
    s.free(6, PID, 0x204_0000, 64 * KB, Origin::Mmap);
    assert_eq!(s.attribute(7, PID, 0, 0, 0x203_ffff), memory);
    assert_eq!(s.attribute(7, PID, 0, 0, 0x205_0000), memory);
    let hole = s.attribute(7, PID, 0, 0, 0x204_0000);
    seen.take(&mut s);
    assert_eq!(seen.kind(file), (ObjectKind::Mapping, "/data/input"));
    assert_eq!(seen.kind(memory), (ObjectKind::Mapping, ""));
    assert!(seen.objects[file as usize].site.is_some() && seen.objects[memory as usize].site.is_some());
    assert_eq!(seen.kind(hole).0, ObjectKind::Unknown);
    s.free(8, PID, 0x1f0_0000, 4 * MB, Origin::Mmap);
    assert_eq!(seen.take(&mut s).objects[memory as usize].instance.died_ns, Some(8));
    // A heap block in a hooked mapping (an allocator over mmap) wins.
    s.alloc(9, PID, 0, 0x100_1000, 8 * KB, &[9], HEAP);
    let block = s.attribute(10, PID, 0, 0, 0x100_1000);
    assert_eq!(seen.take(&mut s).kind(block).0, ObjectKind::Heap);
}

#[test]
fn the_kernels_names_are_kept_for_what_nobody_hooked() {
    let mut s = space();
    let names = ["[heap]", "/memfd:pool (deleted)", "/SYSV00000000 (deleted)", "/anon_hugepage (deleted)"];
    let mut seen = Seen::default();
    for (i, name) in names.iter().enumerate() {
        let base = 0x1000_0000 * (i as u64 + 1);
        s.mmap(1, PID, &mapped(base, MB, 0, RW, name));
        let id = s.attribute(2, PID, 0, 0, base + 5);
        assert_eq!(seen.take(&mut s).kind(id), (ObjectKind::Mapping, *name));
    }
    // brk: the same object, larger.
    let heap = s.attribute(3, PID, 0, 0, 0x1000_0000);
    s.mmap(4, PID, &mapped(0x1000_0000, 2 * MB, 0, RW, "[heap]"));
    assert_eq!(s.attribute(5, PID, 0, 0, 0x1000_0000 + 2 * MB - 1), heap);
    assert_eq!(seen.take(&mut s).objects[heap as usize].instance.size, 2 * MB);
}

#[test]
fn exec_ends_everything_of_the_process() {
    let mut s = space();
    anon(&mut s, 0, 0x10_0000, MB);
    s.alloc(1, PID, 0, 0x10_0000, 8 * KB, &[1], HEAP);
    let heap = s.attribute(2, PID, 0, 0, 0x10_0000);
    let anon_object = s.attribute(2, PID, 0, 0, 0x18_0000);
    s.exec(3, PID);
    let after = s.attribute(4, PID, 0, 0, 0x10_0000);
    let mut seen = Seen::default();
    seen.take(&mut s);
    assert_eq!(seen.kind(after).0, ObjectKind::Unknown);
    assert_eq!(seen.objects[heap as usize].instance.died_ns, Some(3));
    assert_eq!(seen.objects[anon_object as usize].instance.died_ns, Some(3));
}

#[test]
fn children_inherit_the_map_and_change_it_alone() {
    const CHILD: u32 = PID + 1;
    let mut s = Space::new(PID, true);
    anon(&mut s, 0, 0x10_0000, MB);
    s.alloc(1, PID, 0, 0x10_0000, 8 * KB, &[1], HEAP);
    s.alloc(1, PID, 0, 0x11_0000, 64, &[2], HEAP);
    s.thread_stack(1, PID, 0, 0x1000_0000, 0x1010_0000, "app");
    let parents = s.attribute(2, PID, 0, 0, 0x10_0000);
    s.fork_process(3, PID, CHILD);
    // The parent frees before the child was ever seen: the child still has the block.
    s.free(4, PID, 0x10_0000, 0, HEAP);
    let childs = s.attribute(5, CHILD, 1, 0, 0x10_0000);
    let small = s.attribute(5, CHILD, 1, 0, 0x11_0000);
    let stack = s.attribute(5, CHILD, 1, 0x1008_0000, 0x1008_0000);
    s.alloc(6, CHILD, 1, 0x12_0000, 8 * KB, &[1], HEAP);
    let parents_now = s.attribute(7, PID, 0, 0, 0x12_0000);
    s.free(8, CHILD, 0x10_0000, 0, HEAP);
    s.exit_process(CHILD);
    let mut seen = Seen::default();
    seen.take(&mut s);
    let object = |id: ObjectId| &seen.objects[id as usize];
    assert_eq!((object(parents).pid, object(parents).instance.died_ns), (PID, Some(4)));
    assert_eq!((object(childs).pid, object(childs).instance.died_ns), (CHILD, Some(8)));
    assert_eq!(
        (object(small).kind, object(small).pid, object(small).instance.died_ns),
        (ObjectKind::SmallHeap, CHILD, Some(8))
    );
    assert_eq!((object(stack).kind, object(stack).instance.thread), (ObjectKind::Stack, Some(1)));
    assert_eq!(object(parents_now).kind, ObjectKind::Mapping);
    // Inherited bytes count as alive while the child lives: block 1 twice, then once more in the child.
    let count = seen.counts.iter().find(|c| c.site == object(parents).site.unwrap()).unwrap();
    assert_eq!((count.instances, count.bytes, count.peak_bytes), (2, 16 * KB, 16 * KB));
}

#[test]
fn children_that_exec_at_once_cost_no_copy() {
    const CHILD: u32 = PID + 1;
    let mut s = Space::new(PID, true);
    s.alloc(1, PID, 0, 0x10_0000, 8 * KB, &[1], HEAP);
    s.fork_process(2, PID, CHILD);
    s.exec(3, CHILD);
    let id = s.attribute(4, CHILD, 1, 0, 0x10_0000);
    s.fork_process(5, PID, CHILD + 1);
    s.exit_process(CHILD + 1);
    s.exit_process(PID);
    let mut seen = Seen::default();
    assert_eq!(seen.take(&mut s).kind(id).0, ObjectKind::Unknown);
    assert_eq!(seen.counts[0].peak_bytes, 8 * KB);
}

#[test]
fn processes_that_are_not_followed_are_strangers() {
    let mut s = space();
    s.mmap(0, PID + 1, &mapped(0x10_0000, MB, 0, RW, "//anon"));
    s.fork_process(0, PID, PID + 2);
    let id = s.attribute(1, PID + 1, 9, 0, 0x10_0000);
    assert_eq!(s.attribute(1, PID + 1, 9, 0, 0x99), id);
    let mut seen = Seen::default();
    assert_eq!(seen.take(&mut s).kind(id).0, ObjectKind::Unknown);
    assert_eq!(s.frame(PID + 1, 5), Frame { module: NO_MODULE, offset: 5 });
}

#[test]
fn nonsense_is_ignored() {
    let mut s = space();
    s.mmap(0, PID, &mapped(u64::MAX - 10, 100, 0, RW, "//anon"));
    s.mmap(0, PID, &mapped(0x1000, 0, 0, RW, "//anon"));
    s.alloc(0, PID, 0, 0, 100, &[1], HEAP);
    s.alloc(0, PID, 0, u64::MAX - 10, 100, &[1], HEAP);
    s.alloc(0, PID, 0, 0x1000, u64::MAX, &[], Origin::Mmap);
    s.alloc(0, PID, 0, 0x5000, 0, &[], Origin::Mmap);
    s.free(0, PID, 0x1234, 0, HEAP);
    s.free(0, PID, u64::MAX, u64::MAX, Origin::Mmap);
    s.thread_stack(0, PID, u32::MAX, 0x2000, 0x1000, "x");
    s.thread_stack(0, PID, u32::MAX, 0x2000, 0x3000, "x");
    s.exit_process(PID + 5);
    let unknown = s.attribute(1, PID, u32::MAX, u64::MAX, u64::MAX);
    let mut seen = Seen::default();
    assert_eq!(seen.take(&mut s).kind(unknown).0, ObjectKind::Unknown);
    // Sites were not even interned for what cannot be.
    assert!(seen.sites.is_empty());
}

/// The cache must never answer differently from the layers: every answer is compared with one of a model that was
/// never asked before.
#[test]
fn cached_answers_equal_fresh_ones() {
    let mut seed = 7u64;
    let mut next = move |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    let mut asked = space();
    let mut events: Vec<[u64; 4]> = Vec::new();
    for round in 0..400u64 {
        for _ in 0..5 {
            events.push([
                next(6),
                0x1000_0000 + next(1 << 16) * 256,
                [64, 5000, 300 * KB, 5 * MB][next(4) as usize],
                next(4),
            ]);
            apply(&mut asked, events.len() as u64, events[events.len() - 1]);
        }
        let probes: Vec<u64> = (0..40).map(|_| 0x1000_0000 + next(1 << 24)).collect();
        let mut fresh = space();
        if round % 20 == 0 {
            for (time, event) in events.iter().enumerate() {
                apply(&mut fresh, time as u64 + 1, *event);
            }
        }
        for &probe in &probes {
            let got = asked.attribute(0, PID, 9, 0, probe);
            if round % 20 == 0 {
                let expected = fresh.attribute(0, PID, 9, 0, probe);
                let (got, expected) = (describe(&asked, got), describe(&fresh, expected));
                assert_eq!(got, expected, "round {round}, address {probe:#x}");
            }
        }
    }
}

fn describe(s: &Space, id: ObjectId) -> Object {
    let object = s.objects.get(id).unwrap().clone();
    let instance = Instance { died_ns: None, born_ns: 0, ..object.instance };
    Object { id: 0, instance, ..object }
}

fn apply(s: &mut Space, time: u64, [what, addr, len, by]: [u64; 4]) {
    let addr = addr & !15;
    let page = addr & !0xfff;
    match what {
        0 | 1 => s.alloc(time, PID, by as u32, addr, len, &[by], HEAP),
        2 => _ = s.free(time, PID, addr, 0, HEAP),
        3 => s.mmap(time, PID, &mapped(page, (len + 4096) & !0xfff, 0, RW, ["//anon", "/f"][by as usize % 2])),
        4 => s.alloc(time, PID, by as u32, page, (len + 4096) & !0xfff, &[by + 10], Origin::Mmap),
        _ if by == 0 => s.thread_stack(time, PID, by as u32, page, page + 64 * KB, "t"),
        _ => _ = s.free(time, PID, page, len, Origin::Mmap),
    }
}

/// 1 MiB of /dev/shm/a from an offset on, shared.
fn shared(addr: u64, pgoff: u64, path: &str) -> Mapping {
    let shared = Some(crate::profile::perf::Inode { device: (0, 1), number: 5, generation: Some(1) });
    Mapping { shared, ..mapped(addr, MB, pgoff, RW, path) }
}

#[test]
fn shared_memory_is_one_object_of_all_processes() {
    let mut s = Space::new(PID, true);
    s.mmap(1, PID, &shared(0x70_0000, 0, "/dev/zero (deleted)"));
    s.alloc(2, PID, 0, 0x70_0000, MB, &[0x1000], Origin::Mmap);
    let object = s.attribute(3, PID, 0, 0, 0x70_0000);
    s.fork_process(4, PID, PID + 1);
    assert_eq!(s.attribute(5, PID + 1, 1, 0, 0x70_1000), object);
    // Another mapping of the same, at another address and offset.
    s.mmap(6, PID + 1, &shared(0x10_0000, MB, "/dev/zero (deleted)"));
    s.alloc(7, PID + 1, 1, 0x10_0000, MB, &[0x2000], Origin::Mmap);
    assert_eq!(s.attribute(8, PID + 1, 1, 0, 0x10_0010), object);
    assert_eq!(s.address_in(object, PID + 1, 0x10_0010), 0x70_0010 + MB);
    assert_eq!(s.address_in(object, PID, 0x70_0010), 0x70_0010);
    let mut seen = Seen::default();
    seen.take(&mut s);
    let Object { pid, site, instance, .. } = seen.objects[object as usize].clone();
    assert_eq!((pid, site, instance.thread), (0, Some(0), Some(0)));
    assert_eq!((instance.base, instance.size, instance.died_ns), (0x70_0000, 2 * MB, None));
    assert_eq!(seen.counts.iter().map(|c| c.instances).sum::<u64>(), 1, "it was there when it was mapped again");
    // It ends with the last mapping.
    s.free(9, PID, 0x70_0000, MB, Origin::Mmap);
    s.free(10, PID + 1, 0x70_0000, MB, Origin::Mmap);
    assert!(s.take_forgotten().is_empty());
    s.free(11, PID + 1, 0x10_0000, MB, Origin::Mmap);
    assert_eq!(s.take_forgotten().len(), 1);
    assert_eq!(seen.take(&mut s).objects[object as usize].instance.died_ns, Some(11));
}

#[test]
fn a_file_that_is_mapped_again_is_the_object_it_was() {
    let mut s = Space::new(PID, true);
    s.mmap(1, PID, &shared(0x70_0000, 0, "/dev/shm/a"));
    let object = s.attribute(2, PID, 0, 0, 0x70_0000);
    s.free(3, PID, 0x70_0000, MB, Origin::Mmap);
    let mut seen = Seen::default();
    assert_eq!(seen.take(&mut s).objects[object as usize].instance.died_ns, Some(3));
    s.mmap(4, PID + 1, &shared(0x20_0000, 0, "/dev/shm/a"));
    assert_eq!(s.attribute(5, PID + 1, 0, 0, 0x20_0000), object);
    assert_eq!(s.address_in(object, PID + 1, 0x20_0000), 0x70_0000);
    assert_eq!(seen.take(&mut s).objects[object as usize].instance.died_ns, None);
    // A private mapping shows copies.
    s.mmap(6, PID, &mapped(0x70_0000, MB, 0, RW, "/dev/shm/a"));
    let private = s.attribute(7, PID, 0, 0, 0x70_0000);
    assert!(private != object && !s.is_shared(private) && s.is_shared(object));
}

#[test]
fn shared_memory_outlives_the_process_that_made_it() {
    let mut s = Space::new(PID, true);
    s.mmap(1, PID, &shared(0x70_0000, 0, "/dev/zero (deleted)"));
    s.fork_process(2, PID, PID + 1);
    s.fork_process(2, PID, PID + 2);
    let object = s.attribute(3, PID + 1, 1, 0, 0x70_0000);
    s.exit_process(PID + 1);
    s.exit_process(PID);
    assert_eq!(s.attribute(4, PID + 2, 2, 0, 0x70_0000), object);
    let mut seen = Seen::default();
    assert_eq!(seen.take(&mut s).objects[object as usize].instance.died_ns, None);
    s.exit_process(PID + 2);
    assert!(seen.take(&mut s).objects[object as usize].instance.died_ns.is_some());
}

/// An array that grows: its stages are one allocation, and those that were not attributed leave only their number.
#[test]
fn what_realloc_makes_larger_is_no_further_allocation() {
    let mut s = space();
    let stage = |n: u64| (0x10_0010 + n * MB, (8 << n) * KB);
    s.alloc(0, PID, 0, stage(0).0, stage(0).1, &[0x1000], HEAP);
    let first = s.attribute(1, PID, 0, 0, stage(0).0);
    for n in 1..=4 {
        let before = s.before_realloc(PID, stage(n - 1).0).unwrap();
        s.free(n * 10, PID, stage(n - 1).0, 0, HEAP);
        s.alloc(n * 10, PID, 0, stage(n).0, stage(n).1, &[if n < 4 { 0x1000 } else { 0x2000 }], HEAP);
        s.reallocated(PID, stage(n).0, before);
    }
    let last = s.attribute(50, PID, 0, 0, stage(4).0);
    let mut seen = Seen::default();
    seen.take(&mut s);
    assert_eq!(seen.resized, [Resized { object: last, before: first, calls: 4 }]);
    assert_eq!(seen.counts.iter().map(|c| c.instances).collect::<Vec<_>>(), [1, 1], "another call site counts it");
    assert_eq!((seen.counts[0].bytes, seen.counts[0].max_size), (64 * KB, 64 * KB));
    assert_eq!(s.before_realloc(PID, stage(2).0), None);
}
