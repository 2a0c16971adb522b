//! Matching of call sites with rules and phases, for `advise`, `predict` and the apply preload.
//!
//! The callers collect the inputs and this module decides. The preload reads the symbols and line tables of the loaded
//! modules and gives return addresses; the command line gives the frames that a profile recorded with their names.
//!
//! - [`rule`]: how a rule names its call site ([`rule::Naming`]), how its frames are compared with a call stack
//!   ([`rule::fits`]), which of several fitting rules takes an allocation ([`rule::choose`]), and whether an object whose
//!   size changes keeps its rule ([`rule::keeps`]).
//! - [`function`]: comparison of function names in all spellings; [`search`]: functions of rules in symbol tables;
//!   [`demangle`]: demangling of linkage names.
//! - [`wrapper`]: frames between the caller and the allocator, which matching skips.
//! - [`frame`]: `module+0xaddress`; [`mod@line`]: `file:line`; [`selection`]: `sizes` and `instances`; [`group`]: rules
//!   that count their instances together; [`debug_file`]: paths of separate debug files; `title`: names in messages.

pub mod debug_file;
pub mod demangle;
pub mod frame;
pub mod function;
pub mod group;
pub mod line;
pub mod rule;
pub mod search;
pub mod selection;
mod title;
pub mod wrapper;

pub use frame::{Frame, file_name};
pub use function::FunctionName;
pub use title::abridged;
