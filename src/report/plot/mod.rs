//! Single figures for papers: SVG or PNG of what the page shows of an object.
//!
//! [`figure`] decides what is drawn, from the bins of `bins`; [`draw`] draws it. Nothing here reads a file.

mod draw;
mod palette;
mod views;

pub use draw::{png, svg};
pub use views::{Wanted, figure};

use plotters::style::RGBColor;

/// What a figure shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Kind {
    /// Pages x threads
    #[default]
    Matrix,
    /// Offsets over time, coloured by the thread with most
    Timeline,
    /// Agreement of the threads by period: what the period of a pattern is read from
    Spectrum,
    /// Threads over time: accesses to pages of one thread, and of several
    Gantt,
    /// First toucher, main user and advised node of each page
    Placement,
}

/// A figure that is ready to be drawn.
#[derive(Debug)]
pub struct Figure {
    /// Above it.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From the bottom to the top; of offsets, `low` is the end of the object.
    pub y: Axis,
    /// In the order in which they are drawn, in the units of the axes.
    pub marks: Vec<Mark>,
    /// The legend.
    pub keys: Vec<Key>,
}

/// An axis.
#[derive(Debug)]
pub struct Axis {
    /// What it is, with its unit.
    pub title: String,
    /// Its ends.
    pub low: f64,
    /// See [`Axis::low`].
    pub high: f64,
    /// Labels.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// The label of a place; empty where there is none.
    fn label(&self, at: f64) -> String {
        let near = |a: f64| (a - at).abs() <= (self.high - self.low).abs() * 1e-9;
        self.ticks.iter().find(|(tick, _)| near(*tick)).map_or(String::new(), |(_, text)| text.clone())
    }
}

/// Something drawn.
#[derive(Debug)]
pub enum Mark {
    /// A filled rectangle.
    Cell {
        /// Left and right.
        x: (f64, f64),
        /// Bottom and top.
        y: (f64, f64),
        /// Its colour.
        color: RGBColor,
    },
    /// A line over the cells.
    Line {
        /// One end.
        from: (f64, f64),
        /// The other.
        to: (f64, f64),
        /// Its colour.
        color: RGBColor,
        /// Whether it has gaps.
        is_dashed: bool,
    },
}

/// A line of the legend.
#[derive(Debug)]
pub enum Key {
    /// What follows.
    Heading(String),
    /// What a colour means.
    Color(RGBColor, String),
    /// What the ends of the scale mean.
    Scale(String, String),
}
