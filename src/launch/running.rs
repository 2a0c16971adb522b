//! A program that runs already: what it is, whether it may be observed, and whether it still is the same process.
//!
//! Nothing here changes or stops the process. It is known by its id and its start time, because the kernel gives the id
//! of a process that ended to another one.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use numamma_kernel::terminal::line;

use super::executable;
use super::exit::Failure;

/// Flag of a kernel thread in /proc/PID/stat (PF_KTHREAD of include/linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// A process that runs.
#[derive(Debug)]
pub struct Running {
    /// Its process id.
    pub pid: u32,
    /// The program's file, as the process sees it.
    pub path: PathBuf,
    /// Its arguments, `argv[0]` first.
    pub argv: Vec<String>,
    /// Hex GNU build-id of the program.
    pub build_id: Option<String>,
    start_ticks: u64,
    /// Readable once the process has ended (Linux 5.3 and later).
    end: Option<OwnedFd>,
}

/// Fields of /proc/PID/stat (proc(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    state: u8,
    flags: u64,
    start_ticks: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name in parentheses may hold anything.
    let mut fields = text.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?.bytes().next()?;
    let flags = fields.nth(5)?.parse().ok()?;
    let start_ticks = fields.nth(12)?.parse().ok()?;
    Some(Stat { state, flags, start_ticks })
}

impl Running {
    /// The process with an id, if it can be observed.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn find(pid: u32) -> Result<Running, Failure> {
        same_namespace_as_proc()?;
        if pid == std::process::id() {
            return Err(Failure::usage(format!("process {pid} is this command itself; give the id of a program")));
        }
        // Opened first: everything read later is of this process if the descriptor still says that it runs.
        let end = pidfd(pid);
        let found = stat(pid).ok_or_else(|| Failure::usage(not_found(pid)))?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let process = number_of(&status, "Tgid:").unwrap_or(pid);
        if process != pid {
            return Err(Failure::usage(format!(
                "{pid} is a thread of process {process}, whose threads are observed together: use -p {process}"
            )));
        }
        if found.flags & KERNEL_THREAD != 0 {
            return Err(Failure::usage(format!("process {pid} is a thread of the kernel; there is no program in it")));
        }
        if has_ended(found) {
            let left_behind = number_of(&status, "Threads:").is_some_and(|threads| threads > 1);
            return Err(Failure::usage(if left_behind {
                main_has_ended(pid)
            } else {
                format!("process {pid} has ended already")
            }));
        }
        let path = fs::read_link(format!("/proc/{pid}/exe"))
            .and_then(|path| fs::File::open(format!("/proc/{pid}/maps")).map(|_| path))
            .map_err(|_| Failure::usage(refused(pid)))?;
        // Through /proc: the path is one of the process's file system, and the file there may be another one by now.
        let image = executable::image(Path::new(&format!("/proc/{pid}/exe")), &path.display().to_string())
            .map_err(|e| Failure::usage(e.message))?;
        let shown = path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
        let path = shown.unwrap_or(path);
        let argv = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let argv = argv.strip_suffix(b"\0").unwrap_or(&argv);
        let mut argv: Vec<String> = argv.split(|b| *b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect();
        if argv.iter().all(String::is_empty) {
            // The process has overwritten its arguments, or has just begun to execute the program.
            argv = vec![path.to_string_lossy().into_owned()];
        }
        let running = Running { pid, path, argv, build_id: image.build_id, start_ticks: found.start_ticks, end };
        if running.has_ended() { Err(Failure::usage(format!("process {pid} has ended"))) } else { Ok(running) }
    }

    /// Whether the process has ended, and its id may be another one's.
    pub fn has_ended(&self) -> bool {
        if let Some(end) = &self.end {
            let mut poll = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one live entry; the call does not wait.
            return unsafe { libc::poll(&raw mut poll, 1, 0) } > 0;
        }
        stat(self.pid).is_none_or(|now| now.start_ticks != self.start_ticks || has_ended(now))
    }

    /// A descriptor that is readable once the process has ended.
    pub fn end(&self) -> Option<&OwnedFd> {
        self.end.as_ref()
    }
}

/// A zombie or dead: only its exit status is left.
fn has_ended(stat: Stat) -> bool {
    matches!(stat.state, b'Z' | b'X')
}

fn pidfd(pid: u32) -> Option<OwnedFd> {
    // SAFETY: the call takes no memory; the result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: the descriptor is new and owned by nothing else.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

/// The number in a line of /proc/PID/status.
fn number_of(status: &str, name: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// Process ids in /proc mean those of this process's namespace only if /proc/self names this process.
fn same_namespace_as_proc() -> Result<(), Failure> {
    let own = fs::read_link("/proc/self").ok().and_then(|p| p.to_str()?.parse::<u32>().ok());
    match own {
        Some(own) if own == std::process::id() => Ok(()),
        Some(_) => Err(Failure::usage(
            "/proc shows the processes of another PID namespace than this command's; mount that of this one: \
             mount -t proc proc /proc",
        )),
        None => Err(Failure::usage("/proc is not mounted, through which a running program is found")),
    }
}

/// Its other threads run on, but /proc no longer says what they execute.
fn main_has_ended(pid: u32) -> String {
    format!(
        "the main thread of process {pid} has ended before the others (pthread_exit), so that the kernel no longer tells \
         which program they execute: start it with numamma profile -- ..."
    )
}

fn not_found(pid: u32) -> String {
    // SAFETY: signal 0 is not delivered.
    let hidden = unsafe { libc::kill(pid as libc::pid_t, 0) } != 0
        && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    if hidden {
        return format!("process {pid} belongs to another user, and /proc hides it: attach as that user or as root");
    }
    match in_other_namespace(pid) {
        Some(here) => format!(
            "no process has the id {pid} here; the process that has it in another PID namespace (a container) is \
             {here} here: use -p {here}"
        ),
        None => format!("no process has the id {pid}; `ps -e` or `pgrep NAME` lists them"),
    }
}

/// The process that has an id in a PID namespace below this one.
fn in_other_namespace(pid: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    processes.into_iter().find(|here| {
        let status = fs::read_to_string(format!("/proc/{here}/status")).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let mut below = ids.split_whitespace().skip(1);
        below.any(|id| id.parse() == Ok(pid))
    })
}

/// Why a process that exists may not be observed.
fn refused(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let name = status.lines().find_map(|line| line.strip_prefix("Name:")).unwrap_or_default().trim();
    let what = format!("process {pid} ({})", line(name));
    // SAFETY: asks for a number.
    let own = unsafe { libc::geteuid() };
    match number_of(&status, "Uid:") {
        Some(owner) if owner != own && own != 0 => format!(
            "{what} belongs to user {owner}, and this command runs as user {own}: attach as that user or as root (sudo)"
        ),
        _ if own != 0 => format!(
            "{what} may not be observed, though it is of the same user: it runs with more privileges (setuid, \
             capabilities, prctl PR_SET_DUMPABLE) or in another user namespace; attach as root (sudo)"
        ),
        _ => format!(
            "{what} may not be observed: this command lacks CAP_SYS_PTRACE (in a container: --cap-add SYS_PTRACE), or \
             the process has just ended"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_behind_a_name_with_parentheses() {
        let text = "12 (a) b) S 1 12 12 0 -1 2097152 0 0 0 0 7 8 0 0 20 0 1 0 4711 0 0";
        assert_eq!(parse_stat(text), Some(Stat { state: b'S', flags: KERNEL_THREAD, start_ticks: 4711 }));
        assert_eq!(parse_stat("12 (a"), None);
    }

    #[test]
    fn processes_that_cannot_be_observed_are_refused() {
        let why = |pid| Running::find(pid).map(|r| r.pid).expect_err("refused").message;
        assert!(why(std::process::id()).contains("itself"));
        // The largest that the kernel gives out is 2^22.
        assert!(why(1 << 23).contains("no process"));
        let tid = std::thread::spawn(|| {
            // SAFETY: asks for a number.
            let tid = unsafe { libc::gettid() } as u32;
            (tid, Running::find(tid).expect_err("a thread").message)
        });
        let (tid, message) = tid.join().unwrap();
        assert!(message.contains(&format!("{tid} is a thread of process {}", std::process::id())), "{message}");
    }

    #[test]
    fn a_process_is_known_until_it_ends() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let running = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            // Before its exec it is a copy of this one.
            Running::find(child.id()).ok().filter(|r| r.argv == ["sleep", "1000"])
        });
        let mut running = running.expect("it runs");
        assert!(!running.has_ended());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(running.has_ended());
        running.end = None;
        assert!(running.has_ended());
        assert!(Running::find(child.id()).is_err());
    }
}
