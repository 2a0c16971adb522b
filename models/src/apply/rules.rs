//! As the folder of the apply library.

pub mod small_heap;
