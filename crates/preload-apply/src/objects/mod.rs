//! Everything that is placed: variables, heap objects, mappings of the program, and extents of small heap objects.
//!
//! Each kind has a list of its own, which hooks change without waiting; [`object`] is what all of them have in common.

pub mod backing;
pub mod globals;
pub mod heap;
pub mod heap_table;
pub mod mapping_list;
pub mod mappings;
pub mod object;
pub mod small_objects;
