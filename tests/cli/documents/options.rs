//! Options that documents mention, and those that the subcommands have.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, Command, CommandFactory};
use numamma::cli::Cli;

use super::markdown;

/// What ends the options of a subcommand in a line of a shell.
const ENDS: [&str; 6] = ["--", "|", "||", "&&", ">", ";"];

/// The options of each subcommand that its help lists.
pub fn known() -> BTreeMap<String, BTreeSet<String>> {
    let mut cli = Cli::command();
    cli.build();
    let names = |arg: &Arg| {
        let long = arg.get_long_and_visible_aliases().unwrap_or_default().into_iter().map(|l| format!("--{l}"));
        let short = arg.get_short_and_visible_aliases().unwrap_or_default().into_iter().map(|s| format!("-{s}"));
        long.chain(short).collect::<Vec<_>>()
    };
    let options = |c: &Command| c.get_arguments().filter(|a| !a.is_hide_set()).flat_map(names).collect();
    cli.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| (c.get_name().to_owned(), options(c))).collect()
}

/// An option, and the word behind `numamma` in its command; without that it may be an option of any subcommand.
pub type Mention = (Option<String>, String);

/// The options of a document: in fenced blocks, in code spans that hold a command, and alone in code spans, which in
/// the row of a table belong to the command of the row.
pub fn mentioned(text: &str) -> Vec<Mention> {
    let blocks = markdown::blocks(text);
    let in_blocks = blocks.iter().flat_map(|block| &block.lines).flat_map(|line| of_line(line));
    let paragraphs = markdown::paragraphs(text);
    let in_spans = paragraphs.iter().flat_map(|paragraph| {
        let spans = markdown::spans(paragraph);
        let row = spans.iter().find_map(|span| subcommand(span)).filter(|_| paragraph.starts_with('|'));
        // One of a single letter alone is mostly a compiler's.
        let alone = spans
            .iter()
            .filter(|span| span.starts_with("--"))
            .filter_map(|span| option(span))
            .map(|option| (row.clone(), option));
        spans.iter().flat_map(|span| of_line(span)).chain(alone.collect::<Vec<_>>()).collect::<Vec<_>>()
    });
    in_blocks.chain(in_spans).collect()
}

/// The options of each `numamma SUBCOMMAND` in a line, without those of the program that it starts.
pub fn of_line(line: &str) -> Vec<Mention> {
    let commands = line.split("numamma ").skip(1);
    let of_command = |command: &str| {
        let mut words = command.split_whitespace();
        let name = words.next().map(str::to_owned);
        let words = words.take_while(|word| !ENDS.contains(word) && !word.starts_with('#') && !word.ends_with(';'));
        words.filter_map(option).map(|option| (name.clone(), option)).collect::<Vec<_>>()
    };
    commands.flat_map(of_command).collect()
}

fn subcommand(span: &str) -> Option<String> {
    span.strip_prefix("numamma ")?.split_whitespace().next().map(str::to_owned)
}

/// The option with which a word begins, without its value.
fn option(word: &str) -> Option<String> {
    let name = word.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next()?;
    let is_option = name.starts_with('-') && name.contains(|c: char| c.is_ascii_alphabetic());
    is_option.then(|| name.to_owned())
}
