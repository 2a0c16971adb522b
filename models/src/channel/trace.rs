//! The other format, which the models do not use.

pub mod layout {
    pub const MAGIC: u64 = 1;
    pub const VERSION: u32 = 1;
}
