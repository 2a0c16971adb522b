//! Tests of [`super`]: it either reads the same policy as the `toml` crate or refuses the text.

use super::*;
use crate::policy::Policy;

const FILES: [&str; 3] = [
    include_str!("../../../policies/lu.toml"),
    include_str!("../../../policies/streamcluster.toml"),
    include_str!("../../../policies/words.toml"),
];

fn plain(text: &str) -> Option<Policy> {
    read(text)
}

#[test]
fn shipped_policies_are_plain() {
    for text in FILES {
        assert_eq!(plain(text).as_ref(), toml::from_str(text).ok().as_ref(), "{text}");
        assert!(plain(text).is_some(), "{text}");
    }
}

#[test]
fn what_the_writer_writes_is_plain() {
    let policy: Policy = toml::from_str(FILES[2]).unwrap();
    let head = Policy { objects: Vec::new(), ..policy };
    assert_eq!(plain(&toml::to_string(&head).unwrap()), Some(head));
    for place in ["policy=\"bind\"", "policy = \"bind\", strict = true", "strict = false,policy = \"bind\""] {
        let text = format!("version = 1\n[[object]]\nglobal = 'operator\"\"_x'\nplace = {{{place}}}#c\n");
        assert_eq!(plain(&text), toml::from_str(&text).ok());
        assert!(plain(&text).is_some());
    }
}

#[test]
fn the_rest_is_left_to_the_general_parser() {
    let rule = |keys: &str| format!("version = 1\n[[object]]\nglobal = \"a\"\n{keys}\n");
    for keys in [
        "why = \"a \\\" b\"\nplace = { policy = \"bind\" }",
        "why = \"\"\"a\"\"\"\nplace = { policy = \"bind\" }",
        "place.policy = \"bind\"",
        "\"place\" = { policy = \"bind\" }",
        "[object.place]\npolicy = \"bind\"",
        "size = 1_000\nplace = { policy = \"bind\" }",
        "place = { policy = \"bind\" }\n[program]\npath = \"a\"\n[[object]]\nglobal = \"b\"\nplace = { policy = \"bind\" }",
    ] {
        let text = rule(keys);
        assert!(plain(&text).is_none() && toml::from_str::<Policy>(&text).is_ok(), "{text}");
    }
    for bad in [
        "",
        "version = 1\r",
        "version = 1 2\n",
        "version = 01\n",
        "version = 1\nversion = 1\n",
        "version = 1\n[program\n",
    ] {
        assert!(plain(bad).is_none(), "{bad}");
    }
}

/// Files with pieces cut out, doubled and exchanged: the reader refuses them or agrees with the `toml` crate.
#[test]
fn never_another_answer_than_the_general_parser() {
    const PIECES: [&str; 20] = [
        "\n",
        " ",
        "\"",
        "'",
        "[",
        "]",
        "{",
        "}",
        "=",
        ",",
        "#",
        ".",
        "0",
        "-",
        "0x1f",
        "1.5",
        "[[object]]\n",
        "[threads]\n",
        "\\",
        "\u{7f}",
    ];
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below.max(1) as u64) as usize
    };
    let mut read_so_far = 0;
    for round in 0..6000 {
        let mut text = FILES[round % FILES.len()].to_owned();
        for _ in 0..=random(2) {
            let boundary =
                |at: usize, text: &str| (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap();
            let from = boundary(random(text.len()), &text);
            let to = boundary(from + random(12), &text).max(from);
            let put = match random(3) {
                0 => "",
                1 => PIECES[random(PIECES.len())],
                _ => text[to..].lines().next().unwrap_or(""),
            };
            let put = put.to_owned();
            text.replace_range(from..to, &put);
        }
        if let Some(policy) = plain(&text) {
            read_so_far += 1;
            assert_eq!(toml::from_str(&text).as_ref(), Ok(&policy), "{text}");
        }
    }
    assert!(read_so_far > 500, "only {read_so_far} mutants were read at all: the test says little");
}
