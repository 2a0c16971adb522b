//! Policy files, names of functions and call sites, and the lists in them, for libFuzzer.
#![no_main]

use libfuzzer_sys::fuzz_target;
use numamma_plan::callsite::demangle::function_name;
use numamma_plan::callsite::{Frame, FunctionName};
use numamma_plan::{check, nodes, plan};

/// Nodes of the machine that plans are made for, with gaps in the numbers.
const NODES: [u32; 4] = [0, 1, 4, 7];

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let name = FunctionName::parse(&function_name(text));
    let _ = (name.identifier(), name.fortran_linkage(), text.parse::<Frame>().is_ok(), nodes::parse(text, &NODES).is_ok());
    match check::parse(text) {
        Err(error) => assert!(!error.message.contains('\n') && error.line >= 1 && error.column >= 1, "{error:?}"),
        Ok(policy) => {
            for rule in &policy.objects {
                for place in rule.phases.values().chain([&rule.place]) {
                    if let Ok(mut made) = plan::plan(place, rule.pattern.as_ref(), 1 << 30, 1 << 18, 4096, &NODES, 4) {
                        made.coarsen(100);
                        assert!(made.run_count() <= 100);
                    }
                }
            }
        }
    }
});
