//! As the folder of the apply library.

pub mod small_heap;

pub mod extent {
    use crate::rules::small_heap::heap_of_all;

    /// Stands for the first bytes of an extent.
    pub struct Extent {
        pub heap: usize,
    }

    impl Extent {
        /// All objects belong to one heap.
        pub fn of(_address: usize) -> Extent {
            Extent { heap: heap_of_all() }
        }
    }
}
