//! The tables and their columns: names are part of the interface, as those of JSON; columns are added, none is renamed
//! or removed.
//!
//! A unit is part of a column's name where there is one: `_ns`, `_bytes`, `_share` (0 to 1). docs/export.md explains
//! the columns with the texts of this file, and docs/schemas/export.schema.json is [`json_schema`]; tests compare both.

use serde_json::{Map, Value, json};

/// Version of the document; it changes when a field is renamed or removed, which is not planned.
pub(super) const VERSION: u32 = 1;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// UTF-8 text.
    Text,
    /// A whole number.
    Int,
    /// A number.
    Real,
    /// Yes or no.
    Flag,
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Name.
    pub name: &'static str,
    /// What it holds.
    pub holds: Type,
    /// Whether a row may have no value.
    pub null: bool,
    /// Unit; empty where there is none.
    pub unit: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// Name, also of its file.
    pub name: &'static str,
    /// What a row is.
    pub row: &'static str,
    /// Columns.
    pub columns: &'static [Column],
}

const fn column(name: &'static str, holds: Type, unit: &'static str, meaning: &'static str) -> Column {
    Column { name, holds, null: false, unit, meaning }
}

const fn text(name: &'static str, meaning: &'static str) -> Column {
    column(name, Type::Text, "", meaning)
}

const fn int(name: &'static str, unit: &'static str, meaning: &'static str) -> Column {
    column(name, Type::Int, unit, meaning)
}

const fn real(name: &'static str, unit: &'static str, meaning: &'static str) -> Column {
    column(name, Type::Real, unit, meaning)
}

const fn flag(name: &'static str, meaning: &'static str) -> Column {
    column(name, Type::Flag, "", meaning)
}

/// The same column, where a row may have no value.
const fn or_null(c: Column) -> Column {
    Column { null: true, ..c }
}

const PROFILE: Column = text("profile", "file of the profile, as it was named");
const RANK: Column = or_null(int("rank", "", "MPI rank"));
const PID: Column = int("pid", "", "process of the program");
const OBJECT: Column = int("object", "", "number of the object in this profile, as in the report");
const PART: Column = or_null(int("part", "", "of a divided object: which part, from 0, by the address"));
const READS: Column = int("reads", "accesses", "loads seen");
const WRITES: Column = int("writes", "accesses", "stores seen");
const REMOTE: Column = int("remote", "accesses", "of both, those to a page on another node than the CPU's");
const PLACED: Column = int("placed", "accesses", "of both, those for which that is known");
const COST: Column = int("cost_ns", "ns", "CPU time at these accesses");

/// The tables.
pub const TABLES: &[&Table] = &[&PROFILES, &OBJECTS, &TALLIES, &ALLOCATIONS, &THREADS, &VERDICTS];

const PROFILES: Table = Table {
    name: "profiles",
    row: "a profile",
    columns: &[
        PROFILE,
        RANK,
        PID,
        text("host", "where it ran"),
        text("program", "what ran"),
        int("started_unix_s", "s", "start of the run, since 1970"),
        int("duration_ns", "ns", "length of the run"),
        int("cpu_ns", "ns", "CPU time of all threads"),
        int("cost_ns", "ns", "of it, the part at memory accesses: the whole of `cost_share`"),
        int("samples", "", "samples taken"),
        int("lost", "", "samples lost"),
        int("period_ns", "ns", "CPU time between two samples of a thread"),
        int("page_bytes", "bytes", "size of a page"),
        int("slot_ns", "ns", "length of a time slot"),
        int("nodes", "", "nodes of the machine"),
    ],
};

const OBJECTS: Table = Table {
    name: "objects",
    row: "an object that was accessed: a variable, all allocations of a call site, a mapping, a stack, or a part of one",
    columns: &[
        PROFILE,
        RANK,
        PID,
        OBJECT,
        PART,
        text("kind", "`global`, `section`, `heap`, `smallheap`, `mapping`, `stack`, `tls`, `unknown`"),
        text("name", "as in the report; the same in all ranks"),
        or_null(text("linkage", "linkage name of a variable")),
        or_null(text("module", "file of a variable")),
        or_null(int("vaddr", "", "ELF address of a variable")),
        or_null(text("parent", "of a part: the object")),
        or_null(text("member", "of a part: the member that it is")),
        or_null(int("offset_bytes", "bytes", "of a part: where it begins")),
        or_null(text("numbers", "of some allocations of a call site: which, as `instances` of a policy")),
        or_null(text("callsite", "function and line that allocated it")),
        int("size_bytes", "bytes", "size, of the largest allocation"),
        int("instances", "", "allocations"),
        READS,
        WRITES,
        REMOTE,
        PLACED,
        COST,
        real("cost_share", "share", "of the CPU time at all accesses"),
        or_null(real("by_others_share", "share", "of accesses to pages that another thread touched first")),
        real("by_others_known_share", "share", "of accesses whose page's first toucher is known"),
        text("pattern", "pattern of the whole run; see `verdicts`"),
        int("frees", "", "frees of its blocks, without those of realloc"),
        int("frees_by_others", "", "of these, those by another thread than the one that allocated the block"),
    ],
};

const TALLIES: Table = Table {
    name: "tallies",
    row: "the accesses to one page of an object by one thread in one time slot",
    columns: &[
        PROFILE,
        RANK,
        PID,
        OBJECT,
        PART,
        or_null(int("instance", "", "allocation of the object; null where only the object is known")),
        or_null(int("page", "pages", "from the page of the allocation's first byte; null as `instance`")),
        int("thread", "", "thread that made the accesses"),
        or_null(int("slot", "", "time slot, 0 to 63, see `slot_ns`; null as `instance`")),
        or_null(int("first_thread", "", "thread that touched the page first; null where that is not known")),
        READS,
        WRITES,
        REMOTE,
        PLACED,
        COST,
    ],
};

const ALLOCATIONS: Table = Table {
    name: "allocations",
    row: "an allocation that was sampled or touched, of an object with a call site",
    columns: &[
        PROFILE,
        RANK,
        PID,
        OBJECT,
        PART,
        int("instance", "", "number of the allocation, as in `tallies`"),
        or_null(int("thread", "", "thread that allocated it")),
        int("address", "", "first byte; of small objects of a call site together, the lowest page seen"),
        int("size_bytes", "bytes", "size"),
        int("born_ns", "ns", "allocated, since the start of the run"),
        or_null(int("died_ns", "ns", "freed, since the start of the run; null where it was not")),
        text("callsite", "function and line that allocated it"),
        text("stack", "functions with their lines from the outermost to the innermost, `;` between two"),
    ],
};

const THREADS: Table = Table {
    name: "threads",
    row: "a thread",
    columns: &[
        PROFILE,
        RANK,
        PID,
        int("thread", "", "number, as in the other tables"),
        int("process", "", "process of the thread, where the program started others"),
        int("tid", "", "thread of the kernel"),
        text("name", "name"),
        or_null(text("start_routine", "function it began with")),
        or_null(int("creator", "", "thread that made it")),
        or_null(int("kind", "", "threads alike are a kind")),
        or_null(int("place", "", "place in its kind; a thread made anew takes that of one that ended")),
        flag("works", "whether it works in the compute phase"),
        or_null(int("worker", "", "number among the threads that work")),
        or_null(int("workers", "", "how many these are")),
        or_null(int("node", "", "node of the CPUs it was sampled on; null where they are of several")),
        text("cpus", "CPUs that it was sampled on, `0-3,8`"),
        int("migrations", "", "changes of the CPU"),
        int("start_ns", "ns", "start of its life, since that of the run"),
        or_null(int("end_ns", "ns", "end of its life")),
        int("samples", "", "samples in it"),
        or_null(int("waits", "", "times that it gave its CPU away because it could not go on")),
        or_null(real(
            "waits_for_threads",
            "",
            "of these, about as many for other threads: locks, conditions, barriers, ends",
        )),
        or_null(int("blocked_ns", "ns", "time in which it neither ran nor waited for a CPU")),
        or_null(int("waits_seen_ns", "ns", "part of its life, from its start, that `blocked_ns` is of")),
        or_null(flag("bound", "whether it may run on one CPU, or on those of one node of several, only")),
    ],
};

const VERDICTS: Table = Table {
    name: "verdicts",
    row: "a pattern: of an object in the whole run, in a phase of it, or by one function",
    columns: &[
        PROFILE,
        RANK,
        PID,
        OBJECT,
        PART,
        text("scope", "`run`: one for each object; `phase` and `code`: where these differ"),
        or_null(text("function", "of `code`: the function or loop")),
        or_null(int("start_ns", "ns", "of `phase`: its start")),
        or_null(int("end_ns", "ns", "of `phase`: its end")),
        real("accesses_share", "share", "of the object's accesses that the row is about"),
        text("pattern", "word as in a policy, or `unsure`: too few samples"),
        or_null(int("period_bytes", "bytes", "of `block-cyclic`: its period")),
        real("confidence", "share", "probability that the pattern is right"),
        real("samples", "samples", "independent samples that counted"),
        text("evidence", "why, in a sentence"),
    ],
};

/// The JSON Schema (draft 2020-12) of the document with all tables.
pub fn json_schema() -> Value {
    let mut properties = Map::new();
    properties.insert("format".into(), json!({ "const": "numamma-export" }));
    properties.insert("version".into(), json!({ "const": VERSION }));
    for table in TABLES {
        let columns: Map<String, Value> = table.columns.iter().map(|c| (c.name.into(), of_column(c))).collect();
        let required: Vec<&str> = table.columns.iter().map(|c| c.name).collect();
        let row = json!({ "type": "object", "properties": columns, "required": required });
        let of_table = json!({ "description": format!("A row: {}.", table.row), "type": "array", "items": row });
        properties.insert(table.name.into(), of_table);
    }
    let required: Vec<&String> = properties.keys().collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "numamma export --format json",
        "type": "object",
        "required": required,
        "properties": properties,
    })
}

fn of_column(column: &Column) -> Value {
    let name = match column.holds {
        Type::Text => "string",
        Type::Int => "integer",
        Type::Real => "number",
        Type::Flag => "boolean",
    };
    let unit = if column.unit.is_empty() { String::new() } else { format!(" ({})", column.unit) };
    let holds = if column.null { json!([name, "null"]) } else { json!(name) };
    json!({ "type": holds, "description": format!("{}{unit}", column.meaning) })
}
