//! As the folder of the apply library.

pub mod heap_table;
