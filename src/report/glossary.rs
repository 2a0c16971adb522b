//! What the columns of the tables mean: the end of the help of `report`, `diff` and `verify`.

/// Columns of `numamma report`.
pub const REPORT: &str = "\
Columns of the objects:\n  object       a variable; the function and line that allocated it; a file, a\n               mapping, a section\n  #            its number in this profile, for --object '#3'\n  kind         global, heap, small heap (allocations under 4 KiB of one place\n               together), mapping, section\n  size         of the largest allocation of the place; of small ones together\n  count        allocations\n  cost         share of the CPU time at memory accesses that was spent at\n               those to this object\n  accesses     share of the accesses seen in the samples; with --access: reads\n               or writes\n  read/write   percent of these accesses\n  threads      that accessed it\n  first touch  thread that touched its pages first, which decides their node;\n               not seen: no such page fault was recorded\n  remote       accesses to pages on another node than the CPU's; - on a\n               machine with one node, ? where the node is not known\n  by others    accesses to pages that another thread touched first; ? where\n               that is not known for most\n  predicted remote
               with --nodes or --target: remote there under first touch\n  pattern      which thread uses which part: private, block, block-cyclic\n               (with its period), irregular, random, read-shared, phased,\n               mixed, small, cold (too little cost to matter), too few samples\n  confidence   probability that the pattern is right\n\nWhere the samples went:\n  share of cost
               of the CPU time at memory accesses\n  share of samples
               of all samples, taken or lost\n\nThreads:\n  name, id     id: in order of creation; the thread numbers of the other\n               columns\n  kind, slot   threads with the same start are one kind; a thread made anew\n               takes the slot of one that ended\n  worker       number among the threads that work in the compute phase\n  start routine
               function that the thread began with\n  alive        from its start to its end\n  samples, share
               taken in it; of those of all threads\n  CPUs, nodes  that it was sampled on\n  CPU changes  between two samples of it\n  pid          process, where there are several";

/// Columns of `numamma diff`.
pub const DIFF: &str = "\
Columns of the objects:
  object       as in `numamma report`
  size         of the largest allocation
  cost         share of the CPU time at memory accesses, before and after
  points       its change in points, with the interval; * where it is
               more than chance makes of all figures together (Fisher's test)
  CPU time     at its accesses, of all threads
  remote       accesses to pages on another node, before and after; ? where
               that is not known
  by others    accesses to pages that another thread touched first
  matched      new: only in the second profile; gone: only in the first;
               was: its name in the first, where another line has it now;
               other size: the same names";

/// Columns of `numamma verify`.
pub const VERIFY: &str = "\
Columns:\n  object       name of the rule in the policy\n  policy       how its pages are placed\n  block        bytes that go to one node before those of the next\n  nodes        of the policy; all: those that the program may use\n  instances    variables or allocations that the rule found\n  planned      pages that were to be placed\n  present      of these, pages in memory at the end: what was never touched is\n               on no node\n  on, off      present pages on the planned node, and elsewhere\n  verdict      on plan; OFF PLAN; spilled: the planned node was full; NOT\n               FOUND: no such variable or allocation; NOT PLACED: the system\n               refused; NOT MOVED YET: a phase ended before; left alone: as\n               the policy says";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_a_terminal_of_80_columns() {
        let longest = REPORT.lines().chain(DIFF.lines()).chain(VERIFY.lines()).map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|n| n <= 78), "{longest:?}");
    }
}
