//! Which lines of a document a reader types, and what this machine needs instead of some of their words.

use std::sync::OnceLock;

use clap::CommandFactory;
use numamma::cli::Cli;
use numamma_kernel::terminal::shell_word;

use super::markdown::{self, Block};
use crate::common::{exists, numamma, plain, root, run};

/// The document that is not a file: the help of the command and of each subcommand.
pub const HELP: &str = "--help";

/// Lines that are not run, by their beginning or by a part of their comment, and the reason.
const LEFT_OUT: [(&str, &str); 3] = [
    ("# on a machine with four nodes", "tests/lab has such machines"),
    ("make ", "builds, installs, and runs this test"),
    ("numamma tune ", "runs the program for minutes, and refuses to where there is one node"),
];

/// Words that are replaced before a line is run, and the reason.
const REPLACED: [(&str, &str, &str); 10] = [
    ("srun -n 1024 ", "srun --cpu-bind=none ", "no machine of the tests has so many CPUs"),
    ("srun --cpu-bind=none ", "srun --overcommit -n 2 ", "a plugin for binding may not be there; two ranks"),
    ("4711", "$FIRST", "an example of a process, which attach.sh starts"),
    ("4712", "$SECOND", "an example of a process, which attach.sh starts"),
    ("--delay 30s", "--delay 100ms", "the test program ends before"),
    ("--duration 10s", "--duration 200ms", "the test program ends before"),
    ("numamma compare ", "numamma compare -n 2 ", "each of the default 5 runs takes time and shows nothing more"),
    ("old.prof new.prof", "numamma.prof numamma.prof", "an example of two profiles"),
    ("before.*.prof --to after.*.prof", "numamma.prof --to numamma.prof", "an example of the profiles of two jobs"),
    ("run.prof", "numamma.prof", "an example of a profile of any name"),
];

/// What a line is for that another shell than bash reads.
const FISH: &str = "# fish";
/// What Slurm's launcher is replaced by where no Slurm answers; both number the ranks.
const WITHOUT_SLURM: (&str, &str) = ("srun --overcommit ", "mpirun --bind-to none ");

/// Whether Slurm starts programs here.
fn has_slurm() -> bool {
    static ANSWERS: OnceLock<bool> = OnceLock::new();
    let asks = || exists("srun") && run(plain("timeout").args(["20", "srun", "-n", "1", "true"])).status.success();
    *ANSWERS.get_or_init(asks)
}

/// The subcommands that the help lists.
pub fn subcommands() -> Vec<String> {
    let cli = Cli::command();
    cli.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned()).collect()
}

/// What the document says; `HELP` is that of all subcommands.
pub fn text(document: &str) -> String {
    if document != HELP {
        let path = root().join(document);
        return std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    let help = |args: &[&str]| run(numamma(args).env("COLUMNS", "100")).success().stdout;
    subcommands().iter().fold(help(&[HELP]), |text, name| text + &help(&[name, HELP]))
}

/// The commands of the document, by block, with those that are left out.
pub fn commands(document: &str) -> Vec<Vec<String>> {
    let text = text(document);
    match document {
        HELP => vec![text.lines().filter_map(in_help).collect()],
        _ => markdown::blocks(&text).iter().map(in_block).collect(),
    }
}

/// A command in the help stands two columns from the left, and what it does two columns behind it.
fn in_help(line: &str) -> Option<String> {
    let line = line.strip_prefix("  ").filter(|l| l.starts_with("numamma ") || l.starts_with("LD_PRELOAD="))?;
    Some(line.split("  ").next().unwrap_or_default().to_owned())
}

/// A block without a language is for a shell, or a session whose commands have `$ ` before them.
fn in_block(block: &Block) -> Vec<String> {
    let session = block.lines.iter().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned);
    let session: Vec<String> = session.collect();
    match block.language.as_str() {
        "" if session.is_empty() => block.lines.clone(),
        "" => session,
        _ => Vec::new(),
    }
}

/// The lines of the document that are run, by block.
pub fn run_lines(document: &str) -> Vec<Vec<String>> {
    let kept = |block: Vec<String>| block.into_iter().filter(|line| left_out(line).is_none()).collect();
    commands(document).into_iter().map(kept).filter(|block: &Vec<String>| !block.is_empty()).collect()
}

/// The rule that leaves a line out.
pub fn left_out(line: &str) -> Option<&'static str> {
    let rules = LEFT_OUT.iter().map(|(rule, _)| *rule);
    rules.into_iter().find(|rule| line.starts_with(rule) || rule.starts_with('#') && line.contains(rule))
}

/// The line as it is run here, by bash, without its comment.
pub fn replaced(typed: &str) -> String {
    let line = typed.split(" #").next().unwrap_or_default().trim();
    let mut line = REPLACED.iter().fold(line.to_owned(), |line, (old, new, _)| line.replace(old, new));
    if line.contains(WITHOUT_SLURM.0) && !has_slurm() {
        line = line.replace(WITHOUT_SLURM.0, WITHOUT_SLURM.1);
    }
    if typed.contains(FISH) { format!("fish --no-config -c {}", shell_word(&line)) } else { line }
}

/// Rules and replacements that no line of these needs.
pub fn unneeded(lines: &[String]) -> Vec<&'static str> {
    let left: Vec<_> = lines.iter().filter_map(|line| left_out(line)).collect();
    let rules = LEFT_OUT.iter().map(|(rule, _)| *rule).filter(|rule| !left.contains(rule));
    let words = REPLACED.iter().map(|(old, ..)| *old).filter(|old| !lines.iter().any(|line| line.contains(old)));
    rules.chain(words).collect()
}
