//! Reports what a run placed: as JSON for `numamma verify`, and as lines on stderr.

pub mod json;
pub mod messages;
