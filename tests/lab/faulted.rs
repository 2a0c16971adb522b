//! The `fault` sampler on two nodes: it sees which node's thread uses which page, and each page comes back to its node;
//! and without privilege it sees the pages that the kernel makes fault for its NUMA balancing.

use std::collections::BTreeMap;

use crate::common::lab::Lab;
use crate::common::{Scratch, compile};

/// Pages that each node's CPU touches first.
const HALF: usize = 64;

/// In the guest, where all takes long: alone, then with the sampler, then what it saw.
const SCRIPT: &str = "./nodes && \
    numamma profile -q --sampler fault --interval 4s --max-overhead 100 -- ./nodes && \
    numamma export -f csv -o tables >/dev/null && cat tables/objects.csv && echo && cat tables/tallies.csv";

/// As user nobody, whom userfaultfd is forbidden.
const AS_NOBODY: &str = "cat /proc/sys/kernel/numa_balancing && chmod 777 . && \
    ./as_nobody numamma profile -q --sampler fault -- ./balanced && \
    numamma export -f csv -o tables >/dev/null && cat tables/objects.csv && echo && cat tables/tallies.csv";

/// The values of `columns` in each row of a table.
fn rows(csv: &str, columns: &[&str]) -> Vec<Vec<String>> {
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().expect("a table has a line of names").split(',').collect();
    let at: Vec<usize> =
        columns.iter().map(|column| names.iter().position(|n| n == column).expect("a column")).collect();
    lines.map(|line| at.iter().map(|&i| line.split(',').nth(i).unwrap_or("").to_owned()).collect()).collect()
}

#[test]
fn pages_of_a_window_come_back_to_their_nodes() {
    let Some(lab) = Lab::still(2, 1) else { return };
    let dir = Scratch::new("lab-faulted");
    let program = compile("cc", "lab/faulted/nodes.c", dir.join("nodes"), &["-O1", "-g", "-pthread"]);
    // Moving pages in a window needs Linux 6.8.
    let lab = lab.options(&["--kernel", "6.12"]);
    let ran = lab.add(program).run(&["sh", "-c", SCRIPT]).success();
    let (said, tables) = ran.stdout.split_at(ran.stdout.match_indices('\n').nth(1).expect("two lines").0 + 1);
    let nodes: String = (0..2 * HALF).map(|page| if page < HALF { " 0" } else { " 1" }).collect();
    let expected = format!("hurt 0 nodes{nodes}\n");
    assert_eq!(said, expected.repeat(2), "{}", ran.stderr);

    let mut users = users_of_pages(tables, "");
    // Main's own uses come after the window, or in a later one.
    users.values_mut().for_each(|users| users.retain(|(thread, _)| *thread != 0));
    users.retain(|_, users| !users.is_empty());
    let written = (0..32).map(|page| (page, vec![(1, true)]));
    let read = (HALF..HALF + 32).map(|page| (page, vec![(2, false)]));
    assert_eq!(users, written.chain(read).collect(), "{}", ran.stderr);
}

/// Of each page of `used`, or of one of its parts that is shown by itself: the threads that used it, and whether they
/// wrote.
fn users_of_pages(tables: &str, part: &str) -> BTreeMap<usize, Vec<(u64, bool)>> {
    let (objects, tallies) = tables.split_once("\n\n").expect("two tables");
    let objects = rows(objects, &["object", "name"]);
    let found = objects.iter().find(|row| row[1] == format!("used{part}"));
    let used = &found.unwrap_or_else(|| panic!("the array is an object: {objects:?}"))[0];
    let mut users: BTreeMap<usize, Vec<(u64, bool)>> = BTreeMap::new();
    for row in rows(tallies, &["object", "page", "thread", "writes"]).iter().filter(|row| row[0] == *used) {
        let writes: u64 = row[3].parse().expect("a count");
        let user = (row[2].parse().expect("a thread"), writes > 0);
        users.entry(row[1].parse().expect("a page")).or_default().push(user);
    }
    users
}

/// Pages of each half of the array of `balanced.c`.
const HALF_BALANCED: usize = 256;

#[test]
fn without_privilege_the_kernel_makes_pages_fault() {
    let Some(lab) = Lab::new(2, 1) else { return };
    let dir = Scratch::new("lab-balanced");
    let balanced = compile("cc", "lab/faulted/balanced.c", dir.join("balanced"), &["-O1", "-g", "-pthread"]);
    let as_nobody = compile("cc", "lab/faulted/as_nobody.c", dir.join("as_nobody"), &["-O1"]);
    let lab = lab.options(&["--sysctl", "kernel.perf_event_paranoid=2", "--sysctl", "kernel.numa_balancing=1"]);
    let ran = lab.add(balanced).add(as_nobody).run(&["sh", "-c", AS_NOBODY]).success();
    let tables = ran.stdout.strip_prefix("1\ndone\n").unwrap_or_else(|| panic!("{}{}", ran.stdout, ran.stderr));
    // Each half has one user, so that it is shown by itself.
    for (part, user) in [(" [0..1 MiB]", (1, true)), (" [1 MiB..2 MiB]", (2, false))] {
        let users = users_of_pages(tables, part);
        // The kernel comes to all pages again and again.
        assert_eq!(users.len(), HALF_BALANCED, "{part}: {}", ran.stderr);
        let others = users.iter().filter(|(_, users)| users.iter().any(|of| *of != user));
        assert_eq!(others.collect::<Vec<_>>(), [], "{part}: {}", ran.stderr);
    }
}
