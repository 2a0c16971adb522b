//! Attributes the accesses that the `fault` sampler saw.

use numamma_channel::faults::THREAD_NAME;

use super::Events;
use crate::profile::perf::PerfEvent;
use crate::profile::record::CHARGE_NS;
use crate::profile::records::Folded;
use crate::profile::space::Sampled;

impl Events {
    /// Whether an event is the sampler's own, which is to be ignored: its mappings and page faults are not the
    /// program's. The thread takes its name first of all, and is known by that. Its end is told to the channel as any
    /// other.
    pub(super) fn is_samplers(&mut self, pid: u32, tid: u32, event: &PerfEvent) -> bool {
        match event {
            PerfEvent::Comm { name, .. } if THREAD_NAME.to_str() == Ok(name) && pid != tid => {
                self.threads.withdraw(pid, tid);
                self.samplers.insert((pid, tid));
                true
            }
            PerfEvent::Exit => false,
            _ => self.samplers.contains(&(pid, tid)),
        }
    }

    /// A thread's code at `ip` used a page that the kernel had made fault (NUMA balancing), or taken away. Where it is
    /// not known whether that was a write, it counts as one: what is written must not pass for memory that is only
    /// read.
    pub(super) fn used_again(&mut self, pid: u32, tid: u32, addr: u64, ip: u64, time: u64) {
        let in_kernel = ip > i64::MAX as u64;
        let ip = if in_kernel { 0 } else { ip };
        if in_kernel || !self.is_preload_code(pid, ip) {
            let thread = self.threads.get(pid, tid, time);
            let mut code = self.space.code_for(pid, Sampled { time_ns: time, thread, sp: 0 });
            let write = self.replayer.writes(ip, &mut code).unwrap_or(true);
            self.used(pid, tid, addr, ip, write, time);
        }
    }

    /// A thread used a page for the first time in a window, or of a scan; its code was at `ip`, 0 where that is not
    /// known.
    pub(super) fn used(&mut self, pid: u32, tid: u32, addr: u64, ip: u64, write: bool, time: u64) {
        if !self.switch.is_on(pid) {
            return;
        }
        // A child that shares the memory until it executes a program (vfork) is no thread; its parent waits for it.
        let main = if self.threads.is_alive(pid, tid) { tid } else { pid };
        let thread = self.threads.get(pid, main, time);
        self.threads.counted(thread, 1);
        self.count(pid, |stats| {
            stats.samples += 1;
            stats.resolved += 1;
        });
        let object = self.space.attribute(time, pid, thread, 0, addr);
        let addr = self.space.address_in(object, pid, addr);
        let ip = self.space.frame(pid, ip);
        let (reads, writes) = (u64::from(!write), u64::from(write));
        self.faults_seen.push(Folded {
            time_ns: time,
            thread,
            object,
            addr,
            object_only: false,
            ip,
            reads,
            writes,
            remote: 0,
            placed: 0,
            cost_ns: CHARGE_NS,
        });
    }
}
