//! What placing and checking pages needs.

use std::io;

use numamma_kernel::sys::{self, PAGE};
use numamma_kernel::{pages, policy};

use super::line;
use crate::launch::library::{self, LIB_ENV};
use crate::report::checks::{Check, State};
use crate::topology::Topology;

/// Mappings a process may have, unless changed; every block of a block-cyclic object takes one.
const DEFAULT_MAP_COUNT: u64 = 65_530;
/// What a container lacks when it refuses memory policies.
const CONTAINER: &str = "docker run --cap-add SYS_NICE ... (Docker's seccomp profile allows mbind with it)";
/// What it lacks when it refuses to say where pages are (moby's profiles/seccomp/default.json).
const CONTAINER_PAGES: &str =
    "docker run --cap-add SYS_NICE --security-opt seccomp=unconfined ... (no capability is enough in Docker's profile)";

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

/// Calls `f` with the address of a fresh page.
fn with_page(f: impl FnOnce(usize) -> Result<(), i32>) -> io::Result<()> {
    let page = sys::map_anonymous(PAGE).ok_or_else(io::Error::last_os_error)?;
    let outcome = f(page as usize);
    // SAFETY: the mapping was made here and is not used any more.
    unsafe { sys::unmap(page, PAGE) };
    outcome.map_err(io::Error::from_raw_os_error)
}

fn mbind() -> Check {
    let name = "mbind";
    let Some(node) = Topology::this_machine().nodes.first().map(|n| n.id) else {
        return Check::new(name, State::Limited, "this kernel lists no NUMA node");
    };
    match with_page(|page| policy::mbind(page, PAGE, policy::Mode::Bind, &[node], false)) {
        Ok(()) => Check::new(name, State::Ok, "pages can be placed"),
        Err(e) => refused(name, "placing pages is refused", &e, CONTAINER),
    }
}

fn move_pages() -> Check {
    let asked = with_page(|page| {
        // SAFETY: the page is mapped and writable. It is touched because a page that does not exist has no node.
        unsafe { (page as *mut u8).write_volatile(1) };
        let mut status = [-1];
        pages::page_nodes(&[page], &mut status)?;
        if status[0] < 0 { Err(-status[0]) } else { Ok(()) }
    });
    match asked {
        Ok(()) => Check::new("move_pages", State::Ok, "the node of a page can be asked for"),
        Err(e) => refused("move_pages", "asking for the node of a page is refused", &e, CONTAINER_PAGES),
    }
}

fn refused(name: &'static str, what: &str, e: &io::Error, container: &str) -> Check {
    match e.raw_os_error() {
        Some(libc::ENOSYS) => {
            Check::new(name, State::Limited, format!("{what}: {e}; the kernel is built without NUMA"))
                .enable("a kernel with CONFIG_NUMA=y")
        }
        _ => Check::new(name, State::Missing, format!("{what}: {e}")).enable(container),
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
