//! What placing and checking pages needs.

use std::io;

use super::{Check, State, line};
use crate::launch::library::{self, LIB_ENV};
use crate::profile::perf::ring::page_size;
use crate::topology::Topology;

/// Mappings a process may have, unless changed; every block of a block-cyclic object takes one.
const DEFAULT_MAP_COUNT: u64 = 65_530;
/// What a container lacks when it refuses memory policies.
const CONTAINER: &str =
    "docker run --cap-add SYS_NICE ... (Docker's seccomp profile allows mbind and move_pages with it)";
/// Bits of a node mask word.
const MASK_BITS: usize = 64;
/// Words of a node mask: as many nodes as a kernel can be built for (NODES_SHIFT is at most 10).
const MASK_WORDS: usize = 1024 / MASK_BITS;

pub(super) fn checks() -> Vec<Check> {
    vec![apply_library(), mbind(), move_pages(), max_map_count(), numa_balancing()]
}

fn apply_library() -> Check {
    match library::find("apply") {
        Ok(path) => Check::new("apply library", State::Ok, path.display().to_string()),
        Err(e) => {
            Check::new("apply library", State::Missing, e.to_string()).enable(format!("make install, or {LIB_ENV}=DIR"))
        }
    }
}

/// A fresh page, given to `f`.
fn with_page(f: impl FnOnce(*mut libc::c_void, usize) -> io::Result<()>) -> io::Result<()> {
    let (len, prot) = (page_size(), libc::PROT_READ | libc::PROT_WRITE);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let result = f(page, len);
    // SAFETY: our mapping, not used any more.
    unsafe { libc::munmap(page, len) };
    result
}

fn result(rc: libc::c_long) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn mbind() -> Check {
    let name = "mbind";
    let Some(node) = Topology::this_machine().nodes.first().map(|n| n.id as usize) else {
        return Check::new(name, State::Limited, "this kernel lists no NUMA node");
    };
    let mut mask = [0u64; MASK_WORDS];
    if let Some(word) = mask.get_mut(node / MASK_BITS) {
        *word = 1 << (node % MASK_BITS);
    }
    let bound = with_page(|page, len| {
        let bits = MASK_WORDS * MASK_BITS;
        // SAFETY: our page; the mask has the bits it says.
        result(unsafe { libc::syscall(libc::SYS_mbind, page, len, libc::MPOL_BIND, mask.as_ptr(), bits, 0) })
    });
    match bound {
        Ok(()) => Check::new(name, State::Ok, "pages can be placed"),
        Err(e) => refused(name, "placing pages is refused", &e),
    }
}

fn move_pages() -> Check {
    let asked = with_page(|page, _| {
        let (mut status, nodes) = (-1i32, std::ptr::null::<i32>());
        // SAFETY: our page, touched so that it has a node; one address, one status.
        result(unsafe {
            page.cast::<u8>().write_volatile(1);
            libc::syscall(libc::SYS_move_pages, 0, 1, &raw const page, nodes, &raw mut status, 0)
        })?;
        if status < 0 { Err(io::Error::from_raw_os_error(-status)) } else { Ok(()) }
    });
    match asked {
        Ok(()) => Check::new("move_pages", State::Ok, "the node of a page can be asked for"),
        Err(e) => refused("move_pages", "asking for the node of a page is refused", &e),
    }
}

fn refused(name: &'static str, what: &str, e: &io::Error) -> Check {
    match e.raw_os_error() {
        Some(libc::ENOSYS) => {
            Check::new(name, State::Limited, format!("{what}: {e}; the kernel is built without NUMA"))
                .enable("a kernel with CONFIG_NUMA=y")
        }
        _ => Check::new(name, State::Missing, format!("{what}: {e}")).enable(CONTAINER),
    }
}

fn max_map_count() -> Check {
    let name = "vm.max_map_count";
    match line("/proc/sys/vm/max_map_count").and_then(|l| l.parse::<u64>().ok()) {
        Some(n) if n < DEFAULT_MAP_COUNT => {
            Check::new(name, State::Limited, format!("{n}: small blocks will be made larger to fit"))
                .enable(format!("sudo sysctl vm.max_map_count={DEFAULT_MAP_COUNT}"))
        }
        Some(n) => Check::new(name, State::Info, format!("{n}; every block of a placed object takes one mapping")),
        None => Check::new(name, State::Info, "unknown"),
    }
}

fn numa_balancing() -> Check {
    let found = match line("/proc/sys/kernel/numa_balancing").as_deref() {
        Some("0") => "off",
        Some(_) => "on: the kernel moves pages that no policy binds",
        None => "not built into this kernel",
    };
    Check::new("numa_balancing", State::Info, found)
}
