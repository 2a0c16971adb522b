//! Attributes the accesses that the `fault` sampler saw.

use super::Events;
use crate::profile::record::CHARGE_NS;
use crate::profile::records::Folded;

impl Events {
    /// A thread used a page for the first time in a window.
    pub(super) fn used(&mut self, pid: u32, tid: u32, addr: u64, write: bool, time: u64) {
        if !self.switch.is_on(pid) {
            return;
        }
        let thread = self.threads.get(pid, tid, time);
        self.threads.counted(thread, 1);
        self.count(pid, |stats| {
            stats.samples += 1;
            stats.resolved += 1;
        });
        let object = self.space.attribute(time, pid, thread, 0, addr);
        let addr = self.space.address_in(object, pid, addr);
        // The kernel says which thread faulted, not where its code was.
        let ip = self.space.frame(pid, 0);
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
