//! What the pictures of a profile show, binned: the same for the page (`html`) and for single figures (`plot`), which
//! only draw it.

mod advised;
mod grid;
mod places;
mod program;
mod tile;

pub use advised::{item_of, nodes_of};
pub use grid::{Grid, Quantity};
pub use places::Places;
pub use program::{Gantt, Pictures};
pub use tile::{Quantities, Tile};
