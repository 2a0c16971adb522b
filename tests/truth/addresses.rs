//! What a recorded profile says about the code of accesses: how their addresses come about, and what waits.

use numamma::profile::records::{AccessCode, AddressKind};
use numamma::profile::summary::Summary;

use crate::common::{Scratch, alone, compile, numamma, run};

#[test]
fn addresses_and_waiting_of_four_loops() {
    let dir = Scratch::new("truth-addresses");
    let _alone = alone();
    let program = compile("cc", "truth/code/addresses.c", dir.join("addresses"), &["-O2", "-g"]);
    let out = dir.join("t.prof");
    let mut command = numamma(&["profile", "-q", "-F", "1000", "-o"]);
    command.arg(&out).arg("--").arg(program).arg("60");
    run(&mut command).success();
    let summary = Summary::load(&out).expect("a profile");
    let code = |name: &str| -> AccessCode {
        let entry = summary.entries.iter().find(|e| e.name == name).unwrap_or_else(|| panic!("no {name}"));
        let known = |frame| entry.details.access_code.iter().find(|c| c.frame == frame).copied();
        let most = entry.details.code.first().unwrap_or_else(|| panic!("no code of {name}")).0;
        known(most).unwrap_or_else(|| panic!("nothing is known of the code of {name}"))
    };
    let kind = |name: &str| code(name).address;
    assert_eq!(kind("sequence"), AddressKind::Counted, "{:?}", code("sequence"));
    assert_eq!(kind("gathered"), AddressKind::Loaded, "{:?}", code("gathered"));
    assert_eq!(kind("list"), AddressKind::Chained, "{:?}", code("list"));
    // A list in memory waits at the load of the next node; arithmetic is anywhere behind the load of its operand.
    let behind = |c: AccessCode| c.behind as f64 / (c.behind + c.later).max(1) as f64;
    let (list, little) = (code("list"), code("little"));
    assert!(behind(list) > 0.7, "{list:?}");
    assert!(behind(little) < 0.3, "{little:?}");
    assert!(little.gap >= 10 && little.body >= little.gap, "{little:?}");
}
