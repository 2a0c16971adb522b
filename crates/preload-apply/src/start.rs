//! Start-up: reads the policy, checks that it is meant for this program, places the globals and publishes the rules to
//! the hooks.
//!
//! Every failure prints one line on stderr and the program runs unplaced. With NUMAMMA_STRICT=1 the process ends before
//! `main` instead; this library ends it nowhere else.

use numamma_kernel::cgroup;
use numamma_kernel::policy::Mode;
use std::env;
use std::ffi::OsStr;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;

use core::sync::atomic::{AtomicI64, AtomicU64};

use numamma_hook::real::sanitizer;
use numamma_hook::{
    alloc, allocating, cancellation, environment, errno, fork_wiped, message, modules, own_stack, own_system_calls,
    real, say,
};
use numamma_kernel::sys::{self, PAGE};
use numamma_plan::callsite::group::RuleGroup;
use numamma_plan::callsite::rule::Build;
use numamma_plan::environment::{POLICY_ENV, REPORT_ENV, STRICT_ENV, SUMMARY_ENV, VERBOSE_ENV};
use numamma_plan::machine::{Given, Machine};
use numamma_plan::nodes::{self, Available};
use numamma_plan::policy::{Block, ObjectRule, Phase, Place, Policy, PolicyKind, Program};
use numamma_plan::policy_file;
use numamma_plan::threads::explicit_lists;
use numamma_plan::unusable::Unusable;
use numamma_plan::{check, output_name, plan, ranks};

use crate::held_files;
use crate::hooks::{malloc, redirect};
use crate::matching::elf::Elf;
use crate::matching::{call_sites, pending};
use crate::objects::released::glibc;
use crate::objects::{heap, heap_table, released, small_objects};
use crate::phases::{begin, mover_request};
use crate::place::{counted_calls, populate, refusals};
use crate::report::{json as report, messages};
use crate::rules::churn;
use crate::rules::churn::allocator;
use crate::rules::counters::Counters;
use crate::rules::small_heap::home;
use crate::rules::state::{self, Placing, Rule, State, ThreadNodes};
use crate::threads::binding;
use crate::threads::teams::Teams;
use crate::verify::reasons;
use crate::{given, inherited_names, migrate, resolve};

/// Exit status of a strict run that cannot be placed: EX_CONFIG of sysexits.h.
const EXIT_CONFIG: i32 = 78;

/// Runs before `main`. Never unwinds into the loader.
pub fn start() {
    let _errno = errno::Saved::now();
    own_system_calls::link();
    message::remember_stderr();
    real::resolve();
    cancellation::start();
    fork_wiped::remember_process();
    modules::start();
    malloc::start();
    let Some(policy) = environment::value(POLICY_ENV).filter(|p| !p.is_empty()) else {
        call_sites::publish_none();
        return;
    };
    own_stack::start();
    alloc::elsewhere::watch();
    alloc::exhaustion::start();
    alloc::reserve();
    panic::set_hook(Box::new(|_| {})); // the default hook prints several lines
    if allocating::run(|| read_policy(OsStr::from_bytes(policy))).is_none() {
        call_sites::publish_none();
        match is_set(STRICT_ENV) {
            true => say!("memory is short, and {STRICT_ENV} is set, so the program is not started"),
            false => say!("memory is short: running unplaced"),
        }
        end_if_strict();
    }
}

/// Applies the policy in the file `policy`, or reports why that is not possible.
fn read_policy(policy: &OsStr) {
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        if ![VERBOSE_ENV, STRICT_ENV].map(is_set).contains(&true) && messages::are_read_by_ancestor() {
            message::say_nothing();
        }
        inherited_names::make_absolute(policy);
        apply_policy(policy)
    }));
    let problem = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(why)) => Some(why),
        Err(_) => Some("an error of NumaMMA itself while reading the policy; please report it".to_owned()),
    };
    if let Some(why) = problem {
        report_failure(policy, &why);
    }
    if state::get().is_none() {
        // Without rules every call site may be cached as unmatched.
        call_sites::publish_none();
    }
}

fn is_set(name: &str) -> bool {
    environment::value(name).is_some_and(|v| !v.is_empty() && v != b"0")
}

/// With NUMAMMA_STRICT=1 the process ends here.
fn end_if_strict() {
    if is_set(STRICT_ENV) {
        // SAFETY: ends the process before main; nothing of the program has run.
        unsafe { libc::syscall(libc::SYS_exit_group, EXIT_CONFIG) };
    }
}

fn report_path() -> Option<PathBuf> {
    let path = env::var_os(REPORT_ENV).filter(|p| !p.is_empty())?;
    let path = path.to_str().map(|p| output_name::expand(p, Some(sys::pid())).into()).unwrap_or_else(|| path.into());
    Some(inherited_names::absolute(path))
}

/// Removes the rules for other ranks.
fn remove_other_ranks(objects: &mut Vec<ObjectRule>) {
    if objects.iter().all(|r| r.ranks.is_none()) {
        return;
    }
    let rank = ranks::this_rank();
    let verbose = is_set(VERBOSE_ENV);
    objects.retain(|rule| {
        let applies = ranks::applies(rule.ranks.as_deref(), rank);
        if verbose && !applies {
            let (name, list) = (rule.name(), rule.ranks.as_deref().unwrap_or_default());
            match rank {
                Some(rank) => say!("{name}: for ranks {list}, and this is rank {rank}: left alone"),
                None => say!("{name}: for ranks {list}, and no launcher gave this process a rank: left alone"),
            }
        }
        applies
    });
}

fn report_failure(policy: &OsStr, why: &str) {
    let strict = is_set(STRICT_ENV);
    match strict {
        true => say!("{}: {why}; {STRICT_ENV} is set, so the program is not started", policy.display()),
        false => say!("{}: {why}; running unplaced", policy.display()),
    }
    if let Some(path) = report_path() {
        report::problem(&path, why);
    }
    end_if_strict();
}

fn apply_policy(path: &OsStr) -> Result<(), String> {
    let given = given::now();
    given::hand_on(&given);
    let text = policy_file::read(path.as_ref()).map_err(|e| format!("cannot read the policy: {e}"))?;
    let mut policy = check::parse(&text).map_err(|e| e.to_string())?;
    let executable = modules::executable();
    let same_build = match policy.program.as_ref().map_or(Build::Same, |p| compare_build(p, executable)) {
        Build::Same => true,
        Build::Other => {
            say!(
                "this is another build of {} than the policy was made for: matching globals and functions by name",
                String::from_utf8_lossy(executable)
            );
            false
        }
        Build::OtherProgram => {
            if is_set(VERBOSE_ENV) {
                say!("{} is not the program of the policy: left alone", String::from_utf8_lossy(executable));
            }
            return Ok(());
        }
    };
    if policy.objects.len() > heap_table::MAX_RULES {
        return Err(format!(
            "{} objects are more than the {} that can be handled",
            policy.objects.len(),
            heap_table::MAX_RULES
        ));
    }
    for (never, first) in check::shadowed(&policy.objects) {
        let title = |index: usize| policy.objects.get(index).map_or("?".into(), ObjectRule::title);
        say!(
            "object {} ({}) can take no allocation: object {} takes all of the same call site; \
             give that one `instances` or `sizes`, or leave one out",
            never + 1,
            title(never),
            first + 1
        );
    }
    let machine = Machine::given(&given);
    let existing = machine.memory_node_ids();
    let available = machine.available(&existing);
    if is_set(VERBOSE_ENV) && machine.own != existing {
        let (own, every) = (nodes::format(&machine.own), nodes::format(&existing));
        say!("`all` means nodes {own} of {every}: {}", why_fewer(&given));
    }
    let mut objects = std::mem::take(&mut policy.objects);
    remove_other_ranks(&mut objects);
    populate::check_support(&mut objects);
    let threads = thread_count(&policy, &machine);
    let cpu_lists = match &policy.threads {
        Some(t) => explicit_lists(&t.bind, &machine).map_err(|e| format!("threads: bind: {e}"))?,
        None => Vec::new(),
    };
    let expected =
        binding::expected_nodes(policy.threads.as_ref(), threads, !policy.teams.is_empty(), &machine, &cpu_lists);
    let prepared = |r| build_rule(r, &policy.phases, &Known { available, threads, expected: &expected });
    let parts = check::parts_of_allocations(&objects);
    let mut rules = objects.into_iter().map(prepared).collect::<Result<Vec<Rule>, String>>()?;
    parts.into_iter().filter_map(|p| Some((p.first().copied()?, p))).for_each(|(first, parts)| {
        if let Some(rule) = rules.get_mut(first) {
            rule.divide(parts);
        }
    });
    state::share_memory(&mut rules, &policy.phases);
    check_mbind(&rules)?;
    let report = report_path();
    if let Some(path) = &report {
        report::check_directory(path);
        reasons::start();
    }
    let groups = RuleGroup::of_all(rules.iter().map(|r| &r.rule), same_build);
    let teams = Teams::of(&policy, &machine, same_build);
    let state = state::publish(State {
        teams,
        policy,
        given,
        machine,
        cpu_lists,
        rules,
        groups,
        same_build,
        report,
        pid: sys::pid(),
        verbose: is_set(VERBOSE_ENV),
        summary: is_set(SUMMARY_ENV),
        mappings: AtomicI64::new(0),
        own_mappings: AtomicU64::new(numamma_kernel::maps::count_own().unwrap_or(0)),
        taken: AtomicU64::new(0),
    });
    held_files::open();
    churn::start();
    released::start(cgroup::available(), cgroup::limited(), malloc::expect_shortage);
    released::forks::start();
    small_objects::start(malloc::expect_small_objects, state.machine.online.len());
    binding::start(state);
    mover_request::start(migrate::thread::run);
    begin::start(state);
    pending::start(resolve::resolve_modules, resolve::learn_module);
    if !state.groups.is_empty() {
        match sanitizer::find() {
            Some(file) => {
                heap::stop(format!("{file} has a sanitizer's runtime, which must know every block"));
                // In a program that has the runtime inside, no allocation comes here to tell why.
                heap::say_why_stopped();
            }
            None => {
                redirect::start();
                allocator::start(state.machine.thp);
                glibc::set_up();
            }
        }
    }
    if allocator::is_foreign() || begin::may_be_called(state) {
        mover_request::keep_stacks();
    }
    place_globals(is_set(STRICT_ENV), state.policy.program.is_some())
}

/// Why `all` is fewer nodes than the process may use.
fn why_fewer(given: &Given) -> String {
    let cpus = nodes::format(&given.cpus);
    match nodes::format(&given.bound_memory) {
        memory if !given.bound_memory.is_empty() => {
            format!("this process was started on CPUs {cpus}, with its memory bound to nodes {memory}")
        }
        _ => format!("this process was started on CPUs {cpus}"),
    }
}

/// Places the globals and finds the call sites. A name that is not found does not keep the others from being placed,
/// unless NUMAMMA_STRICT is set. Problems are printed at once when the policy names its program.
fn place_globals(strict: bool, names_program: bool) -> Result<(), String> {
    let problems = resolve::resolve_at_start();
    if let Some((problem, _)) = problems.iter().find(|(_, no_information)| strict && *no_information) {
        return Err(format!("object {problem}"));
    }
    let problems: Vec<String> = problems.into_iter().map(|(problem, _)| problem).collect();
    if problems.is_empty() || names_program || messages::is_first() {
        messages::print_problems(&problems);
    } else {
        messages::hold_until_exit(problems); // the policy may be meant for another process of the tree
    }
    if let Some(why) = heap::stopped().filter(|_| strict) {
        return Err(format!("nothing can be placed on the heap: {why}"));
    }
    match refusals::was_refused().filter(|_| strict) {
        Some(error) => Err(format!("the system refused to place a global (mbind), error {error}")),
        None => Ok(()),
    }
}

fn compare_build(program: &Program, executable: &[u8]) -> Build {
    // The build-id is only read when the policy has one.
    let elf = program.build_id.as_ref().and_then(|_| Elf::open(executable));
    let id = elf.as_ref().and_then(Elf::build_id).map(|id| id.iter().map(|b| format!("{b:02x}")).collect::<String>());
    Build::of(Some(program), executable, id.as_deref())
}

/// The number of threads that the policy plans for. `black_box` keeps the optimiser from reading `count` before the
/// test for `None`, which is harmless, but valgrind reports the read as uninitialised.
fn thread_count(policy: &Policy, machine: &Machine) -> u32 {
    let count = core::hint::black_box(policy.threads.as_ref()).and_then(|t| t.count);
    count.unwrap_or(machine.online.len() as u32).min(plan::MOST_THREADS)
}

/// Nodes and threads as known before the program runs.
struct Known<'a> {
    available: Available<'a>,
    /// Threads that the policy plans for.
    threads: u32,
    /// Node of each thread, see [`binding::expected_nodes`].
    expected: &'a [Option<u32>],
}

/// Prepares a rule for all of its places; `phases` are those of the policy.
fn build_rule(rule: ObjectRule, phases: &[Phase], known: &Known<'_>) -> Result<Rule, String> {
    let of_phase = |(index, phase): (usize, &Phase)| Some((rule.phases.get(&phase.name)?, Some(index)));
    let places = iter::once((&rule.place, None)).chain(phases.iter().enumerate().filter_map(of_phase));
    let placings: Result<Vec<Placing>, Unusable> =
        places.map(|(place, phase)| build_placing(place, phase, known)).collect();
    let placings = placings.map_err(|e| format!("object {}: {e}", rule.name()))?;
    let last = known.available.existing.last().copied().unwrap_or_default();
    Ok(Rule::new(rule, placings, Counters::of_nodes(last as usize + 1)))
}

fn build_placing(place: &Place, phase: Option<usize>, known: &Known<'_>) -> Result<Placing, Unusable> {
    let nodes = plan::node_list(place, known.available, known.threads)?;
    // Neither the size of an object nor that of its pages, its pattern or the number of nodes counts for these.
    let is_fixed = match place.policy {
        PolicyKind::Random => false,
        PolicyKind::Block
        | PolicyKind::BlockCyclic
        | PolicyKind::BindBlock
        | PolicyKind::Skew
        | PolicyKind::Prime
        | PolicyKind::RandomBlock => matches!(place.block, Some(Block::Size(_))),
        _ => true,
    };
    let layout = if is_fixed { Some(plan::layout(place, None, 0, 0, 0)?) } else { None };
    let homes = home::homes(place.policy, nodes.len());
    let allowed = match (place.policy == PolicyKind::BindBlock, &place.nodes) {
        (false, _) => Vec::new(),
        (true, Some(list)) => nodes::parse(list, known.available)?,
        (true, None) => known.available.own.to_vec(),
    };
    let thread_nodes = ThreadNodes { allowed, ..ThreadNodes::default() };
    let expected = known.expected.iter().chain(iter::repeat(&None));
    let nodes = nodes.iter().zip(expected).map(|(&n, on)| on.map_or(n, |on| thread_nodes.allowed_or(on, n))).collect();
    let shared = home::Homes::new();
    Ok(Placing { place: place.clone(), nodes, layout, homes, shared, phase, thread_nodes })
}

/// Tries mbind once, so that a container that refuses it is reported once, before anything is placed.
fn check_mbind(rules: &[Rule]) -> Result<(), String> {
    let Some(node) = rules.iter().flat_map(|r| &r.placings).find_map(|p| p.nodes.first()) else { return Ok(()) };
    let Some(page) = sys::map_anonymous(PAGE) else { return Ok(()) };
    let outcome = counted_calls::mbind(page as usize, PAGE, Mode::Preferred, &[*node], false);
    let known = if is_set(STRICT_ENV) { check_modes(rules, page as usize) } else { Ok(()) };
    // SAFETY: the page was mapped above, and nothing else refers to it.
    unsafe { sys::unmap(page, PAGE) };
    known?;
    outcome.map_err(|error| {
        let why = match error {
            libc::EPERM | libc::EACCES => {
                "not permitted (a container's seccomp filter? allow mbind or add CAP_SYS_NICE)"
            }
            libc::ENOSYS => "not available (a kernel without NUMA support, or a seccomp filter)",
            _ => "refused",
        };
        format!("placing memory (mbind on node {node}) is {why}, error {error}")
    })
}

/// Whether a placing becomes the kernel's policy of `kind`: `bind` on several nodes is `preferred-many`, unless strict.
fn needs(placing: &Placing, kind: PolicyKind) -> bool {
    let place = &placing.place;
    let is_preference = place.policy == PolicyKind::Bind && place.strict != Some(true);
    place.policy == kind || kind == PolicyKind::PreferredMany && is_preference && placing.nodes.len() > 1
}

/// Tries on `page` the policies that older kernels do not support; without NUMAMMA_STRICT others replace them.
fn check_modes(rules: &[Rule], page: usize) -> Result<(), String> {
    let newer_modes = [
        (PolicyKind::WeightedInterleave, Mode::WeightedInterleave, "6.9"),
        (PolicyKind::PreferredMany, Mode::PreferredMany, "5.15"),
    ];
    for (kind, mode, since) in newer_modes {
        let mut places = rules.iter().flat_map(|r| r.placings.iter().map(move |p| (r, p)));
        let Some((rule, placing)) = places.find(|(_, p)| needs(p, kind)) else { continue };
        if counted_calls::mbind(page, PAGE, mode, &placing.nodes, false) == Err(libc::EINVAL) {
            let policy = placing.place.policy;
            return Err(format!("object {}: {policy} on these nodes needs Linux {since}", rule.rule.name()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(path: &str, build_id: Option<&str>) -> Program {
        Program { path: path.to_owned(), build_id: build_id.map(str::to_owned) }
    }

    #[test]
    fn builds_and_names() {
        let exe = env::current_exe().unwrap();
        let exe = exe.as_os_str().as_encoded_bytes();
        let name = String::from_utf8_lossy(exe.rsplit(|&b| b == b'/').next().unwrap()).into_owned();
        let id: String = Elf::open(exe).unwrap().build_id().unwrap().iter().map(|b| format!("{b:02X}")).collect();
        assert_eq!(compare_build(&program(&name, None), exe), Build::Same);
        assert_eq!(compare_build(&program("renamed", Some(&id)), exe), Build::Same);
        assert_eq!(compare_build(&program(&name, Some("00")), exe), Build::Other);
        assert_eq!(compare_build(&program("sh", Some("00")), exe), Build::OtherProgram);
        assert_eq!(compare_build(&program("sh", None), exe), Build::OtherProgram);
    }
}
