//! The table of `numamma predict` as text.

use super::style::Paint;
use super::table::{Column, fit};
use super::units::{percent, printable, wrap};
use crate::advise::{PolicyPrice, Prediction};

/// Least width of the name column.
const NAME_WIDTH: usize = 24;

/// Times the estimate from which an end of a range tells no more than that it is open: two figures more.
const MOST_TOLD: f64 = 100.0;

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

/// `1.23x (1.19 to 1.27)`; `1.23x (at least 1.19)` where nothing is known of the upper end.
pub fn speedup(price: &PolicyPrice) -> String {
    range(price.speedup, price.low, price.high)
}

/// The same of a speed-up with the ends of its range.
pub fn range(speedup: f64, low: Option<f64>, high: Option<f64>) -> String {
    let is_told = |times: f64| times < speedup.max(1.0) * MOST_TOLD;
    let low = low.filter(|low| is_told(1.0 / low.max(f64::MIN_POSITIVE)));
    let high = high.filter(|high| is_told(*high));
    // A range that rounds to its middle says nothing.
    let is_one = |end: Option<f64>| end.is_some_and(|end| format!("{end:.2}") == format!("{speedup:.2}"));
    if is_one(low) && is_one(high) {
        return format!("{speedup:.2}x");
    }
    let ends = match (low, high) {
        (Some(low), Some(high)) => format!(" ({low:.2} to {high:.2})"),
        (Some(low), None) => format!(" (at least {low:.2})"),
        (None, Some(high)) => format!(" (at most {high:.2})"),
        (None, None) => String::new(),
    };
    format!("{speedup:.2}x{ends}")
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

#[cfg(test)]
mod tests {
    use super::{PolicyPrice, speedup};

    #[test]
    fn open_ends_of_a_range_are_said_and_never_digits() {
        let of = |low, high| {
            let name = "advised".into();
            speedup(&PolicyPrice {
                name,
                local_share: None,
                busiest_node_share: None,
                time: 0.5,
                speedup: 1.97,
                low,
                high,
            })
        };
        assert_eq!(of(Some(1.9), Some(2.04)), "1.97x (1.90 to 2.04)");
        assert_eq!(of(Some(0.9), None), "1.97x (at least 0.90)");
        assert_eq!(of(Some(0.9), Some(5e300)), "1.97x (at least 0.90)");
        assert_eq!(of(Some(1e-300), Some(2.0)), "1.97x (at most 2.00)");
        assert_eq!(of(None, None), "1.97x");
        assert_eq!(of(Some(1.966), Some(1.974)), "1.97x", "a range that is not told apart from its middle");
        assert_eq!(of(Some(1.966), Some(1.98)), "1.97x (1.97 to 1.98)");
    }
}
