//! `--target`, `--nodes` and `--threads`: the machine that advice and predictions are for.

use std::path::Path;

use numamma_kernel::input_file::{self, MOST_MACHINE};

use crate::advise::Target;
use crate::advise::target_machine::{assumed_threads, huge_pages};
use crate::topology::caches::Caches;
use crate::topology::cpus::Cpus;
use crate::topology::model::Model;
use crate::topology::{NODE_DIR, Topology, emulator, hmat, numa_balancing, synthetic, xml};

/// Directory in which the kernel lists CPUs.
const CPU_DIR: &str = "/sys/devices/system/cpu";
/// Largest value of --nodes: Linux numbers at most 1,024 (CONFIG_NODES_SHIFT = 10).
const MOST_NODES: i64 = 1024;
/// Largest value of --threads: pid_max of a 64-bit kernel.
const MOST_THREADS: i64 = 4_194_304;

/// The machine the program will run on.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TargetArgs {
    /// Machine to advise or predict for: an hwloc file (`lstopo m.xml`, `numamma topology --xml`) or a description such
    /// as "pack:4 numa:2 core:6"; caches with a size count, as in "numa:2 l3:1(size=32MiB) core:8 l2:1(size=1MiB)"
    /// [default: this machine]
    #[arg(long, value_name = "SPEC", conflicts_with = "nodes")]
    pub target: Option<String>,
    /// The same, for a machine with N equal nodes [default: this machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_NODES))]
    pub nodes: Option<u32>,
    /// Threads the program will run with [default: as recorded. A run with one thread per CPU of this machine, or whose
    /// threads are fewer than the target's nodes and a divisor of that number (with --target of its CPUs), is taken for
    /// a small one: then at least one per node, with --target one per CPU]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u32).range(1..=MOST_THREADS))]
    pub threads: Option<u32>,
}

impl TargetArgs {
    /// Whether anything of the machine was given.
    pub fn is_given(&self) -> bool {
        self.target.is_some() || self.nodes.is_some() || self.threads.is_some()
    }

    /// The machine of the options; `here` is this one, `profile_threads` and `thp` are of the recorded run.
    ///
    /// # Errors
    /// A line for the user: what of `--target` cannot be used, and what to write instead.
    pub fn resolve(&self, here: &Topology, profile_threads: u32, thp: &str) -> Result<Target, String> {
        let Some(spec) = &self.target else {
            let mut target = Target::new(self.nodes, self.threads, here, profile_threads, thp);
            if self.nodes.is_none() && !target.portable {
                let (latency, bandwidth) = hmat::read(Path::new(NODE_DIR), here);
                target.model.overlay(Some(&latency), Some(&bandwidth));
                target.model.numa_balancing = numa_balancing();
                target.model.caches = caches_of_this_machine(here);
            }
            return Ok(target);
        };
        let model = described(spec)?;
        let cpus = model.nodes.iter().map(|n| n.cpus.len()).sum::<usize>() as u32;
        let one_per_cpu = profile_threads as usize == here.cpu_count();
        let nodes = model.cpu_nodes().len() as u32;
        let assumed = || if one_per_cpu { cpus } else { assumed_threads(profile_threads, cpus, nodes, here) };
        let threads = self.threads.unwrap_or_else(assumed);
        Ok(Target::of(model, threads, huge_pages(thp)).assuming(self.threads, profile_threads))
    }
}

fn caches_of_this_machine(here: &Topology) -> Caches {
    let cpus: Vec<u32> = here.nodes.iter().flat_map(|n| n.cpus.iter().copied()).collect();
    Caches::of_kernel(&Cpus::read(Path::new(CPU_DIR), &cpus).caches, emulator::makes_up_caches())
}

/// The machine that `--target SPEC` names: a file if there is one of that name, else a synthetic description.
fn described(spec: &str) -> Result<Model, String> {
    let path = Path::new(spec);
    let looks_like_a_file = spec.contains('/') || spec.ends_with(".xml");
    if looks_like_a_file || path.exists() {
        let wrong = |e: String| format!("--target {spec}: {e}");
        return xml::parse(&read(path).map_err(wrong)?).and_then(|shape| shape.model()).map_err(wrong);
    }
    let wrong = |e: String| {
        format!(
            "--target \"{spec}\": {e}. Write an hwloc file (as from `lstopo m.xml`) or levels like \"pack:4 numa:2 \
             core:6\""
        )
    };
    synthetic::parse(spec).and_then(|shape| shape.model()).map_err(wrong)
}

fn read(path: &Path) -> Result<String, String> {
    let again = "write it with `lstopo m.xml` or `numamma topology --xml -o m.xml`";
    if path.is_dir() {
        return Err(format!("it is a directory; {again}"));
    }
    let bytes = input_file::bytes(path, MOST_MACHINE).map_err(|e| format!("{e}; {again}"))?;
    String::from_utf8(bytes).map_err(|_| format!("it is not text, so not an hwloc XML file; {again}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::model::Source;
    use numamma_plan::teams::Rank;

    const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/topology/");

    fn asked(target: &str, threads: Option<u32>) -> Result<Target, String> {
        let args = TargetArgs { target: Some(target.to_owned()), nodes: None, threads };
        args.resolve(&Topology::uniform(1, 2), 4, "madvise")
    }

    #[test]
    fn a_description_and_a_file() {
        let paper = asked("pack:4 numa:2 core:6", Some(48)).unwrap();
        assert_eq!((paper.nodes, paper.threads, paper.portable), (8, 48, false));
        assert_eq!((paper.topology.as_str(), paper.ids.len()), ("pack:4 numa:2 core:6", 8));
        let file = asked(&format!("{FILES}hbm.xml"), None).unwrap();
        assert_eq!((file.ids.as_slice(), file.model.latency_source), (&[0, 1, 2, 3][..], Source::Xml));
        assert_eq!(
            (0..4).map(|t| file.ids[file.home_of(Rank { rank: t, of: 4 }) as usize]).collect::<Vec<_>>(),
            [0, 0, 2, 2]
        );
    }

    #[test]
    fn threads_when_nobody_says() {
        assert_eq!(asked("numa:2 core:8", None).unwrap().threads, 4, "as recorded");
        assert_eq!(asked("pack:4 numa:2 core:6", None).unwrap().threads, 48, "fewer than nodes: a small run");
        let three = TargetArgs { target: Some("numa:4 core:2".into()), ..TargetArgs::default() };
        let three = three.resolve(&Topology::uniform(1, 2), 3, "").unwrap();
        assert_eq!((three.threads, three.recorded), (3, None), "no part of 4 nodes or 8 CPUs");
        let args = TargetArgs { target: Some("numa:2 core:8".into()), ..TargetArgs::default() };
        assert_eq!(
            args.resolve(&Topology::uniform(1, 4), 4, "").unwrap().threads,
            16,
            "one per CPU here, one per CPU there"
        );
    }

    #[test]
    fn what_cannot_be_used_is_said_with_a_way_out() {
        for (spec, wanted) in [
            ("nothing.xml", "No such file"),
            ("/", "it is a directory"),
            ("/dev/null", "not an hwloc XML file"),
            ("numa:2 gpu:4", "`gpu:4`: there is no level `gpu`"),
            ("", "names no level"),
            ("numa:2000 core:1", "more than 1024 nodes"),
            (&format!("{FILES}old.xml"), "lstopo -i old.xml new.xml"),
            ("/bin/sh", "not text"),
        ] {
            let message = asked(spec, None).expect_err(spec);
            assert!(message.starts_with("--target") && message.contains(wanted), "{spec}: {message}");
        }
    }
}
