//! All placed objects: globals, heap objects, mappings of the program, and extents of small heap objects.
//!
//! Each kind has a list of its own, which hooks change without waiting; [`object`] is the record common to all of them.

pub mod backing;
pub mod globals;
pub mod heap;
pub mod heap_table;
pub mod mapping_list;
pub mod mappings;
pub mod object;
pub mod released;
pub mod small_objects;
