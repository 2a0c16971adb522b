//! Which allocations a rule or a phase names: the one implementation for `advise`, `predict` and the apply preload.
//!
//! The callers gather the inputs and this module decides. The preload reads the symbols and line tables of the loaded
//! modules and gives return addresses; the command line gives the frames that a profile recorded with their names.
//!
//! - [`rule`]: by what a rule names its call site ([`rule::Naming`]), how its frames are compared with a call stack
//!   ([`rule::fits`]), and which of several fitting rules takes an allocation ([`rule::choose`]).
//! - [`function`]: what a function name means, in all its spellings; [`search`]: the functions of rules in symbol tables;
//!   [`demangle`]: linkage names for people.
//! - [`wrapper`]: frames that stand between the caller and the allocator, and are passed.
//! - [`frame`]: `module+0xaddress`; [`line`]: `file:line`; [`selection`]: `sizes` and `instances`; [`group`]: rules
//!   that count their instances together; [`debug_file`]: where the symbols of stripped files are.

pub mod debug_file;
pub mod demangle;
pub mod frame;
pub mod function;
pub mod group;
pub mod line;
pub mod rule;
pub mod search;
pub mod selection;
pub mod wrapper;

pub use frame::{Frame, file_name};
pub use function::FunctionName;
