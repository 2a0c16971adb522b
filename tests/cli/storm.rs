//! Programs that fault or allocate so often that recording each event would slow them down.

use serde_json::Value;

use crate::common::{Scratch, alone, compile, numamma, run};

/// `tests/programs/remap.c` says its truth: two threads, each with a work array that it maps in every step, and two
/// arrays that live long.
#[test]
fn a_storm_of_page_faults_is_thinned_and_first_touchers_stay_right() {
    const STEPS: u64 = 1500;
    let _alone = alone();
    let dir = Scratch::new("storm");
    let program = compile("gcc", "programs/remap.c", dir.join("remap"), &["-O2", "-g", "-fopenmp"]);
    let profile = dir.join("remap.prof").display().to_string();
    let (program, steps) = (program.to_str().unwrap(), STEPS.to_string());
    let mut command = numamma(&["profile", "-F", "1000", "-o", &profile, "--", program, &steps]);
    let ran = run(command.env("OMP_NUM_THREADS", "2"));
    assert_eq!(ran.code(), Some(0), "{ran:?}");
    let json = run(&mut numamma(&["report", &profile, "--json"])).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");

    // 256 pages for each thread and step, twice in the second half of the steps.
    let all = 2 * (STEPS + STEPS / 2) * 256;
    let touches = &json["first_touches"];
    let number = |key: &str| touches[key].as_f64().unwrap_or_else(|| panic!("{key}: {touches}"));
    assert!(number("faults") < all as f64 / 3.0, "{touches} of {all}");
    assert!(number("faults_sampled") > 0.0 && number("thinned_s") > number("unseen_s"), "{touches}");
    let notes = json["notes"].to_string();
    assert!(notes.contains("too fast to record each page fault") && notes.contains("estimated"), "{notes}");
    for kind in ["samples", "mappings", "starts", "faults", "allocations"] {
        assert!(json["lost"][kind].is_u64(), "{kind}: {}", json["lost"]);
    }

    let objects = json["objects"].as_array().expect("a list");
    let large: Vec<&Value> = objects.iter().filter(|o| o["size"] == 32 << 20).collect();
    let field = large.iter().find(|o| o["first_touch"][0]["pages"] == 8192).expect("main filled it before the storm");
    assert!(field["first_touch_extrapolated"] == 0.0 && field["by_others_known"].as_f64() > Some(0.9), "{field}");
    assert!(field["by_others_share"].as_f64().is_some_and(|s| (0.2..0.8).contains(&s)), "half is the other's: {field}");
    for late in large.iter().filter(|o| o["id"] != field["id"]) {
        assert!(late["by_others_share"].as_f64().is_none_or(|s| s < 0.1), "each touched its own half: {late}");
    }
    let work = objects.iter().find(|o| o["size"] == 1 << 20).expect("the work arrays");
    assert!(work["by_others_share"].as_f64().is_none_or(|s| s < 0.1), "{work}");
    assert!(work["first_touch_extrapolated"].as_f64() > Some(0.5), "{work}");
    let of_threads: Vec<f64> = (0..2).filter_map(|i| work["first_touch"][i]["share"].as_f64()).collect();
    assert!(of_threads.len() == 2 && of_threads[1] > 0.25, "both threads touched as many: {work}");
}
