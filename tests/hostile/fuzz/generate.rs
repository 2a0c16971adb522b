//! Random policy files: well-formed ones that use every word of the schema with good and bad values, and mutations of
//! files at the level of characters, words and lines. All that is random comes from one seed.

/// Marsaglia's xorshift64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// Each key of each table with values as they stand in a file. The first half of a list is what people write.
type Keys = &'static [(&'static str, &'static [&'static str])];

const NODES: &[&str] = &[
    "\"0\"",
    "\"all\"",
    "\"0-0\"",
    "\"0\"",
    "\"0,0\"",
    "\"all\"",
    "\"0-1023\"",
    "\"!0\"",
    "\"+0\"",
    "\"\"",
    "\"5-1\"",
    "\"0,0\"",
    "\"99999999999999999999\"",
    "\"all,!0\"",
    "\"-\"",
    "0",
    "[\"0\"]",
];
const SIZE: &[&str] = &[
    "\"4KiB\"",
    "4096",
    "\"640KiB\"",
    "\"2MiB\"",
    "8192",
    "1",
    "0",
    "-1",
    "\"0\"",
    "\"4095\"",
    "\"18446744073709551615\"",
    "9223372036854775807",
    "\"99999999999GiB\"",
    "\" 4 KiB \"",
    "\"4 kb\"",
    "1.5",
    "true",
];
const COUNTS: &[&str] = &[
    "\"1\"",
    "\"1-4,7\"",
    "\"1-2/8\"",
    "\"2/0\"",
    "\"2-\"",
    "\"0\"",
    "\"-\"",
    "\"4-1\"",
    "\"18446744073709551615\"",
    "\"18446744073709551616\"",
    "\"1-1-1\"",
    "\"\"",
    "3",
    "\"1,,2\"",
];
const RANGE: &[&str] = &[
    "\"1MiB-64MiB\"",
    "\"4KiB-\"",
    "\"-2MiB\"",
    "\"640KiB\"",
    "\"-\"",
    "\"64MiB-1MiB\"",
    "\"\"",
    "\"0-18446744073709551615\"",
    "\"1KiB-x\"",
];
const BYTES: &[&str] = &[
    "\"0-64KiB\"",
    "\"64KiB-\"",
    "\"-5000\"",
    "\"4095-4097\"",
    "\"100-200\"",
    "\"1GiB-\"",
    "\"0-18446744073709551615\"",
    "\"18446744073709551614-18446744073709551615\"",
    "\"2-1\"",
    "\"x\"",
    "\"\"",
    "7",
];
const FUNCTIONS: &[&str] = &[
    "[\"?\"]",
    "[\"make\"]",
    "[\"make\", \"main\"]",
    "[\"?\", \"main\"]",
    "[\"\", \"main\"]",
    "[\"grow\"]",
    "[]",
    "[\"\"]",
    "\"make\"",
    "[1]",
    "[\"make\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\", \"?\"]",
];
const FRAMES: &[&str] = &[
    "[\"tiny+0x1200\"]",
    "[\"libc.so.6+0x20000\", \"tiny+0x1300\"]",
    "[\"tiny+0x0\"]",
    "[\"tiny+0xffffffffffffffff\"]",
    "[\"tiny\"]",
    "[\"+0x\"]",
    "[]",
];
const LINES: &[&str] =
    &["\"tiny.c:12\"", "\"tiny.c:9\"", "\"/a/b/tiny.c:99999999999999999999\"", "\":\"", "\"x:0\"", "\"\"", "7"];
const WORDS: &[&str] =
    &["\"because\"", "'it is \"so\"'", "\"\"", "\"\\u00e9\\t\"", "\"\"\"a\nb\"\"\"", "\"\u{1f600}\""];
const PLACES: &[&str] = &["policy", "block", "nodes", "seed", "map", "huge", "mode", "strict"];

const PLACE: Keys = &[
    (
        "policy",
        &[
            "\"block\"",
            "\"interleave\"",
            "\"bind\"",
            "\"local\"",
            "\"random\"",
            "\"block-cyclic\"",
            "\"bind-block\"",
            "\"skew\"",
            "\"prime\"",
            "\"random-block\"",
            "\"map\"",
            "\"default\"",
            "\"preferred\"",
            "\"preferred-many\"",
            "\"weighted-interleave\"",
            "\"blok\"",
            "1",
        ],
    ),
    (
        "block",
        &[
            "\"4KiB\"",
            "\"auto\"",
            "\"2MiB\"",
            "12288",
            "\"0\"",
            "1",
            "\"Auto\"",
            "\"18446744073709551615\"",
            "-1",
            "\"16777216GiB\"",
        ],
    ),
    ("nodes", NODES),
    ("seed", &["1", "0", "9223372036854775807", "-1", "\"1\""]),
    (
        "map",
        &[
            "\"640x0,128x0\"",
            "\"1x0\"",
            "\"1x1\"",
            "\"0x0\"",
            "\"18446744073709551615x0,2x0\"",
            "\"x\"",
            "\"1x0,\"",
            "\"\"",
        ],
    ),
    ("huge", &["\"keep\"", "\"split\"", "\"want\"", "\"Want\"", "true"]),
    ("mode", &["\"policy\"", "\"populate\"", "\"\"", "1"]),
    ("strict", &["true", "false", "\"true\"", "tru"]),
];
const OBJECT: Keys = &[
    ("callsite", FRAMES),
    ("line", LINES),
    ("module", &["\"tiny\"", "\"libc.so.6\"", "\"ld-linux-x86-64.so.2\"", "\"no.so\"", "\"\""]),
    ("address", &["0x4040", "1", "0", "9223372036854775807", "-1"]),
    ("instances", COUNTS),
    ("sizes", RANGE),
    ("member", WORDS),
    ("range", BYTES),
    ("ranks", COUNTS),
    ("size", SIZE),
    (
        "pattern",
        &[
            "{ kind = \"block-cyclic\", period = \"64KiB\", confidence = 0.9 }",
            "{ kind = \"private\" }",
            "{ kind = \"\", period = 0 }",
            "{ kind = \"x\", period = \"18446744073709551615\", confidence = nan }",
            "{ period = 1 }",
        ],
    ),
    ("why", WORDS),
];
const NAMES: Keys = &[
    (
        "global",
        &["\"table\"", "\"zeroes\"", "\".bss\"", "\".data\"", "\"environ\"", "\"hidden\"", "\"no_such\"", "\"\"", "1"],
    ),
    ("function", FUNCTIONS),
    ("callsite", FRAMES),
    ("line", LINES),
];
const PHASE: Keys = &[
    ("name", &["\"solve\"", "\"init\"", "\"\"", "\"solve\"", "1"]),
    ("after", &["0.001", "0.0", "1", "-1.0", "1e300", "inf", "nan", "\"1s\""]),
    ("allocation", &["1", "3", "0", "9223372036854775807", "-1"]),
    ("callsite", FRAMES),
    ("function", FUNCTIONS),
    ("line", LINES),
];
const PROGRAM: Keys = &[
    ("path", &["\"tiny\"", "\"/x/tiny\"", "\"other\"", "\"\""]),
    ("build-id", &["\"00\"", "\"5F1c\"", "\"\"", "\"zz\""]),
];
const MACHINE: Keys = &[("topology", &["\"numa:4 core:2\"", "\"\""])];
const THREADS: Keys = &[
    ("bind", &["\"compact\"", "\"scatter\"", "\"none\"", "\"explicit\"", "[\"0\", \"0-1\"]", "\"Compact\""]),
    ("count", &["4", "1", "4294967295", "0", "4294967296", "-1"]),
];
const TEAM: Keys = &[
    ("start", FRAMES),
    ("openmp", &["true", "true", "false", "1"]),
    ("function", FUNCTIONS),
    ("site", FRAMES),
    ("inside", &["1", "1", "2", "0", "4294967295"]),
    ("creator", &["true", "false", "1"]),
    ("workers", &["4", "1", "65536", "0", "4294967295"]),
    ("slots", &["\"0-3\"", "\"1,3\"", "\"7-\"", "\"\"", "\"3-1\"", "3"]),
];

/// Every key the generator knows, by what it is written in.
pub fn known() -> Vec<&'static str> {
    let tables = [PLACE, OBJECT, NAMES, PHASE, PROGRAM, MACHINE, THREADS, TEAM];
    let keys = tables.iter().flat_map(|t| t.iter().map(|(key, _)| *key));
    let own = [
        "version",
        "program",
        "machine",
        "threads",
        "team",
        "phase",
        "object",
        "place",
        "phases",
        "kind",
        "period",
        "confidence",
    ];
    keys.chain(own).collect()
}

/// A value of the list; mostly one of those that people write.
fn value(r: &mut Random, list: &[&'static str]) -> &'static str {
    if r.once_in(40) { r.pick(list) } else { r.pick(&list[..list.len().div_ceil(2)]) }
}

/// Some keys of a table, each with probability 1 / `rare`, as `key = value` lines.
fn lines(r: &mut Random, keys: Keys, rare: usize) -> String {
    let mut text = String::new();
    for (key, values) in keys {
        if r.once_in(rare) {
            text += &format!("{key} = {}\n", value(r, values));
        }
    }
    text
}

/// A placement as an inline table. The keys that belong to the policy are there, others sometimes.
pub fn place(r: &mut Random) -> String {
    let of = |key: &str| PLACE.iter().find(|(k, _)| *k == key).map_or(NODES, |(_, v)| *v);
    let policy = value(r, of("policy"));
    let mut keys = vec![format!("policy = {policy}")];
    for key in &PLACES[1..] {
        let (belongs, often) = match *key {
            "block" => (policy.contains("cyclic") || policy.contains("random-block"), 40),
            "map" => (policy == "\"map\"", 60),
            "nodes" => (policy == "\"preferred\"", 5),
            "seed" => (policy.contains("random"), 60),
            "strict" if policy == "\"bind\"" => (false, 2),
            "strict" => (false, 60),
            _ => (false, 6),
        };
        if r.once_in(if belongs { 1 } else { often }) {
            keys.push(format!("{key} = {}", value(r, of(key))));
        }
    }
    format!("{{ {} }}", keys.join(", "))
}

/// A policy file, more often valid than not.
pub fn policy(r: &mut Random) -> String {
    let mut text = if r.once_in(80) { "version = 2\n".to_owned() } else { "version = 1\n".to_owned() };
    for (name, keys) in [("program", PROGRAM), ("machine", MACHINE), ("threads", THREADS)] {
        if r.once_in(4) {
            let (first, values) = keys[0];
            text += &format!("[{name}]\n{first} = {}\n{}", value(r, values), lines(r, &keys[1..], 3));
        }
    }
    let teams = if r.once_in(3) { 1 + r.below(2) } else { 0 };
    for team in 0..teams {
        let (first, values) = TEAM[r.below(2)];
        text += &format!("[[team]]\n{first} = {}\n{}", value(r, values), lines(r, &TEAM[5..], 3));
        if team > 0 && r.once_in(2) {
            text += "inside = 1\n";
        }
        text += &lines(r, &TEAM[2..5], 20);
    }
    let phases = if r.once_in(3) { 1 + r.below(2) } else { 0 };
    for phase in 0..phases {
        let name = if r.once_in(10) { "\"solve\"" } else { ["\"solve\"", "\"init\""][phase] };
        text += &format!("[[phase]]\nname = {name}\n{}", lines(r, &PHASE[1..], 4));
    }
    for _ in 0..r.below(5) {
        let (key, values) = NAMES[[0, 0, 1, 1, 1, 2, 3][r.below(7)]];
        text += &format!("[[object]]\n{key} = {}\n{}", value(r, values), lines(r, OBJECT, 35));
        if phases > 0 && r.once_in(2) {
            text += &format!("phases = {{ solve = {} }}\n", place(r));
        }
        match r.below(8) {
            0 => text += &format!("place.{}\n", lines(r, &PLACE[..1], 1).trim_end()),
            1 => text += &format!("[object.place]\n{}{}", lines(r, &PLACE[..1], 1), lines(r, &PLACE[1..], 8)),
            _ => text += &format!("place = {}\n", place(r)),
        }
    }
    text
}

/// Pieces that are put where they may not belong.
const PIECES: [&str; 30] = [
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
    "1e9",
    "[[object]]\n",
    "[threads]\n",
    "[[phase]]\n",
    "\\",
    "\u{7f}",
    "\u{0}",
    "\r\n",
    "\u{feff}",
    "\u{1f600}",
    "\"\"\"",
    "'''",
    "2026-11-21",
    "_",
];

/// `text` with one to three changes; `other` lends lines.
pub fn mutate(r: &mut Random, text: &str, other: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..=r.below(3) {
        let boundary =
            |at: usize, text: &str| (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        let from = boundary(r.below(text.len() + 1), &text);
        let to = boundary(from + r.below(12), &text).max(from);
        let mut all: Vec<&str> = text.lines().collect();
        match r.below(8) {
            0 => text.replace_range(from..to, ""),
            1 => text.insert_str(from, r.pick(&PIECES)),
            2 => text.replace_range(from..to, r.pick(&PIECES)),
            3 => text.truncate(from),
            4 if !all.is_empty() => {
                let line = all.remove(r.below(all.len()));
                all.insert(r.below(all.len() + 1), line);
                text = all.join("\n") + "\n";
            }
            5 if !all.is_empty() => {
                all.insert(r.below(all.len() + 1), other.lines().nth(r.below(other.lines().count())).unwrap_or(""));
                text = all.join("\n") + "\n";
            }
            6 => {
                // Another value for a key of the schema, wherever that stands.
                let table = r.pick(&[PLACE, OBJECT, NAMES, PHASE, THREADS]);
                let (key, values) = r.pick(table);
                if let Some(at) = text.find(&format!("{key} = ")) {
                    let start = at + key.len() + 3;
                    let len = text[start..].find([',', '\n', '}']).unwrap_or(0);
                    text.replace_range(start..start + len, r.pick(values));
                }
            }
            _ => {
                let piece = text[from..to].repeat(1 + r.below(40));
                text.insert_str(to, &piece);
            }
        }
    }
    text
}
