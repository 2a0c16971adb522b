//! The table of `numamma predict` as text.

use super::style::Paint;
use super::table::{Column, fit};
use super::units::{percent, printable, wrap};
use crate::advise::{PolicyPrice, Prediction};

/// Least width of the name column.
const NAME_WIDTH: usize = 24;

/// How the table is written.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Columns of the terminal.
    pub width: usize,
    /// Colours.
    pub color: bool,
    /// A table per object as well.
    pub objects: bool,
}

/// For the terminal.
pub fn text(prediction: &Prediction, options: &Options) -> String {
    let paint = Paint(options.color);
    let mut out = format!("{}\n\n", paint.bold(&printable(&format!("Estimated on {}", prediction.target))));
    out += &policies("policy", &prediction.policies, options);
    out += &format!("{}\n", paint.dim(&format!("1.00x is {}", prediction.baseline)));
    if options.objects {
        for object in &prediction.objects {
            let title = format!("{}  {} of the cost, {}", object.name, percent(object.share), object.pattern);
            out += &format!("\n{}\n", paint.bold(&printable(&title)));
            out += &policies("policy (this object's waiting)", &object.policies, options);
        }
    }
    out.push('\n');
    let rest =
        format!("priced: {} of the cost; what is left does not depend on placement", percent(prediction.priced_share));
    for line in prediction.inputs.iter().chain([&rest]).chain(&prediction.remarks) {
        for (i, part) in wrap(line, options.width.saturating_sub(2)).iter().enumerate() {
            out += &paint.dim(&format!("{}{part}", if i == 0 { "" } else { "  " }));
            out.push('\n');
        }
    }
    out
}

/// `1.23x (1.19 to 1.27)`.
pub fn speedup(price: &PolicyPrice) -> String {
    match (price.low, price.high) {
        (Some(low), Some(high)) => format!("{:.2}x ({low:.2} to {high:.2})", price.speedup),
        _ => format!("{:.2}x", price.speedup),
    }
}

fn policies(head: &'static str, rows: &[PolicyPrice], options: &Options) -> String {
    let column = |cell: &dyn Fn(&PolicyPrice) -> String| rows.iter().map(cell).collect::<Vec<_>>();
    let share = |share: Option<f64>| share.map_or("-".into(), percent);
    let columns = vec![
        Column::new(head, false, 0, column(&|p| p.name.clone())),
        Column::new("local", true, 2, column(&|p| share(p.local_share))),
        Column::new("busiest node", true, 3, column(&|p| share(p.busiest_node_share))),
        Column::new("time", true, 1, column(&|p| format!("{:.3}", p.time))),
        Column::new("speed-up", true, 0, column(&speedup)),
    ];
    fit(columns, options.width, NAME_WIDTH, options.color).0
}
