//! `numamma run`: run a program placed.

use std::ffi::OsString;
use std::path::PathBuf;

use numamma_kernel::policy::{Mode, TaskPolicy};
use numamma_plan::environment::{SUMMARY_ENV, VERBOSE_ENV};
use numamma_plan::machine::Machine;
use numamma_plan::nodes;
use numamma_plan::policy::{Bind, ObjectRule, PolicyKind};
use numamma_plan::ranks;

use crate::launch::exit::{Failure, say};
use crate::launch::invocation::Invocation;
use crate::launch::{executable, placed};

/// Run a program under a policy, with checks first
///
/// The same as LD_PRELOAD=libnumamma-apply.so NUMAMMA_POLICY=policy.toml ./app, after checking the policy
/// against this machine and the program. The exit status is the program's own.
///
/// Without a policy file, --interleave, --weighted or --preferred place all memory of the program and of its
/// children, as numactl does.
#[derive(Debug, clap::Args)]
#[command(override_usage = "numamma run [OPTIONS] --policy FILE [--] PROGRAM [ARGS]...\n       \
                            numamma run [OPTIONS] --interleave[=NODES] [--] PROGRAM [ARGS]...\n       \
                            numamma run [OPTIONS] --weighted[=NODES] [--] PROGRAM [ARGS]...\n       \
                            numamma run [OPTIONS] --preferred NODE [--] PROGRAM [ARGS]...")]
pub struct Args {
    /// Print nothing but errors, and not how many objects were placed when the program ends
    #[arg(short, long)]
    quiet: bool,
    /// Print what is placed where (NUMAMMA_VERBOSE=1)
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    #[command(flatten)]
    how: How,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM [ARGS]")]
    command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct How {
    /// Policy file, as `numamma advise` writes it
    #[arg(short, long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Page by page over all nodes, or over those listed: --interleave=0-3
    #[arg(long, value_name = "NODES", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    interleave: Option<String>,
    /// As --interleave, in proportion to the nodes' weights (Linux 6.9; sysfs, weighted_interleave)
    #[arg(long, value_name = "NODES", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    weighted: Option<String>,
    /// On this node while it has room
    #[arg(long, value_name = "NODE")]
    preferred: Option<String>,
}

/// Replaces this process by the placed program.
///
/// # Errors
/// When the policy, the program or the library cannot be used, or the program not be executed.
pub fn run(args: Args) -> Result<u8, Failure> {
    if let Some(policy) = &args.how.policy {
        let mut prepared = placed::prepare(policy, &args.command)?;
        if !args.quiet {
            prepared.warning.iter().for_each(say);
        }
        let has_objects = prepared.policy.objects.iter().any(places);
        // One line for a job, not one for each rank.
        if !args.quiet && has_objects && ranks::this_rank().is_none_or(|rank| rank == 0) {
            prepared.invocation.env.push((SUMMARY_ENV.into(), "1".into()));
        }
        if !args.quiet && !has_objects {
            let binds = prepared.policy.threads.as_ref().is_some_and(|threads| threads.bind != Bind::None);
            let rest = if binds { "only threads are bound" } else { "the program runs as without it" };
            say(format!("{} places no object: {rest}", policy.display()));
        }
        if args.verbose {
            prepared.invocation.env.push((VERBOSE_ENV.into(), "1".into()));
        }
        return Err(prepared.exec());
    }
    let program = executable::check(&args.command[0])?;
    let machine = Machine::this();
    let (option, mode, list) = args.how.of_all_memory();
    let existing = machine.memory_node_ids();
    let on = nodes::parse(list, machine.available(&existing)).map_err(|e| format!("{option}: {e}"))?;
    if mode == Mode::Preferred && on.len() != 1 {
        return Err(Failure::usage(format!("--preferred {list}: give one node")));
    }
    TaskPolicy::of(mode, &on).set().map_err(|errno| refused(option, errno))?;
    if args.verbose {
        let nodes = nodes::format(&on);
        say(format!("{option}: pages that no policy of their own places go to node(s) {nodes}"));
    }
    let path = program.path.clone();
    let invocation = Invocation { path, argv: args.command, env: Vec::new() };
    Err(Failure::of_exec(&program.path, &invocation.exec()))
}

/// Whether a rule places its objects at any time.
fn places(rule: &ObjectRule) -> bool {
    let mut places = std::iter::once(&rule.place).chain(rule.phases.values());
    places.any(|place| place.policy != PolicyKind::Default)
}

impl How {
    /// The option, its policy and its nodes.
    fn of_all_memory(&self) -> (&'static str, Mode, &str) {
        let options = [
            ("--interleave", Mode::Interleave, &self.interleave),
            ("--weighted", Mode::WeightedInterleave, &self.weighted),
            ("--preferred", Mode::Preferred, &self.preferred),
        ];
        let given = options.into_iter().find_map(|(option, mode, nodes)| Some((option, mode, nodes.as_deref()?)));
        given.unwrap_or(("--interleave", Mode::Interleave, "all"))
    }
}

fn refused(option: &str, errno: i32) -> Failure {
    let advice = match errno {
        libc::EINVAL if option == "--weighted" => "needs Linux 6.9; --interleave works with older ones",
        libc::EPERM | libc::ENOSYS => "a container may refuse set_mempolicy(2): `numamma doctor` says what it allows",
        _ => "`numamma topology` shows the nodes",
    };
    Failure::usage(format!("{option}: {}: {advice}", std::io::Error::from_raw_os_error(errno)))
}
