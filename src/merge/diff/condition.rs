//! Conditions on a difference, for scripts: `by_others > +5pp`, `grid:cost < -10%`.

use std::fmt;
use std::str::FromStr;

use super::intervals::Range;
use super::{Compared, Difference, Row};

/// What is allowed; the end of the message about what is not.
pub const ALLOWED: &str = "METRIC > CHANGE or METRIC < CHANGE, where METRIC is cost, remote or by_others, of one object \
                           OBJECT:cost, OBJECT:remote or OBJECT:by_others, and CHANGE has a sign and is in percent of \
                           the value before (+5%) or in points of the share (-10pp)";

/// A figure that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// CPU time at memory accesses.
    Cost,
    /// Share of the accesses to another node.
    Remote,
    /// Share of the accesses to pages that another thread touched first.
    ByOthers,
}

/// A condition on the change of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// As it was typed.
    pub text: String,
    /// A part of the name of an object; none for the run.
    pub object: Option<String>,
    /// The figure.
    pub metric: Metric,
    /// Whether the change must be above the bound, not below.
    pub above: bool,
    /// The bound: points of a share from -1 to 1, or relative to the value before.
    pub bound: f64,
    /// Whether it is relative.
    pub relative: bool,
}

/// What came of a condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The change in the unit of the condition; none where a side does not know the figure.
    pub change: Option<Range>,
    /// Whether the whole interval fulfils the condition.
    pub fulfilled: bool,
}

impl Metric {
    const ALL: [(&str, Metric); 3] =
        [("cost", Metric::Cost), ("remote", Metric::Remote), ("by_others", Metric::ByOthers)];

    fn of(self, compared: &Compared) -> &super::Figure {
        match self {
            Metric::Cost => &compared.cost,
            Metric::Remote => &compared.remote,
            Metric::ByOthers => &compared.by_others,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Metric::ALL.iter().find(|(_, metric)| metric == self).map_or("", |(word, _)| word);
        f.write_str(word)
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let wrong = |what: &str| format!("{what}; allowed is {ALLOWED}");
        // Names of objects may hold both signs, a bound holds none.
        let at = text.rfind(['>', '<']).ok_or_else(|| wrong("there is no > or <"))?;
        let (figure, bound) = (text[..at].trim(), text[at + 1..].trim());
        let (object, word) = match figure.rsplit_once(':') {
            Some((object, word)) => (Some(object.trim().to_owned()), word.trim()),
            None => (None, figure),
        };
        if object.as_ref().is_some_and(String::is_empty) {
            return Err(wrong("no object is named before the colon"));
        }
        let known = Metric::ALL.iter().find(|(name, _)| *name == word.replace([' ', '-'], "_"));
        let metric = known.map(|(_, metric)| *metric).ok_or_else(|| wrong(&format!("there is no figure '{word}'")))?;
        let (number, relative) = match (bound.strip_suffix('%'), bound.strip_suffix("pp")) {
            (Some(number), _) => (number.trim(), true),
            (None, Some(number)) => (number.trim(), false),
            _ => return Err(wrong(&format!("'{bound}' ends in neither % nor pp"))),
        };
        let value: f64 = number.parse().map_err(|_| wrong(&format!("'{number}' is no number")))?;
        if !value.is_finite() {
            return Err(wrong(&format!("'{number}' is no number")));
        }
        if value != 0.0 && !number.starts_with(['+', '-']) {
            return Err(wrong(&format!("'{bound}' has no sign: a bound is a change, not a value")));
        }
        let (above, text) = (text[at..].starts_with('>'), text.to_owned());
        Ok(Condition { text, object, metric, above, bound: value / 100.0, relative })
    }
}

impl Condition {
    /// Judges the run, or the object of that row.
    pub fn judge(&self, difference: &Difference, row: Option<&Row>) -> Judged {
        let figure = self.metric.of(row.map_or(&difference.run, |row| &row.compared));
        let change = if self.relative { figure.relative() } else { figure.points() };
        let fulfilled = change.is_some_and(|c| if self.above { c.low > self.bound } else { c.high < self.bound });
        Judged { change, fulfilled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read() {
        let read = |text: &str| text.parse::<Condition>().unwrap_or_else(|e| panic!("{text}: {e}"));
        let whole = read("by_others > +5%");
        assert_eq!((whole.object.as_deref(), whole.metric, whole.above), (None, Metric::ByOthers, true));
        assert!(whole.relative && (whole.bound - 0.05).abs() < 1e-12);
        let one = read("main app.c:16:remote<-2.5pp");
        assert_eq!((one.object.as_deref(), one.metric, one.above), (Some("main app.c:16"), Metric::Remote, false));
        assert!(!one.relative && (one.bound + 0.025).abs() < 1e-12);
        let template = read("std::vector<double>:cost > 0pp");
        assert_eq!((template.object.as_deref(), template.bound), (Some("std::vector<double>"), 0.0));
        assert_eq!(read("by others > +1pp").metric, Metric::ByOthers);
    }

    #[test]
    fn what_is_wrong_is_refused_with_what_is_allowed() {
        for (text, why) in [
            ("cost", "no > or <"),
            ("", "no > or <"),
            ("speed > +1%", "no figure 'speed'"),
            (":cost > +1%", "no object"),
            ("cost > +5", "neither % nor pp"),
            ("cost > 5%", "no sign"),
            ("cost > +x%", "no number"),
            ("cost > +inf%", "no number"),
            ("cost >= +5%", "no number"),
        ] {
            let said = text.parse::<Condition>().expect_err(text);
            assert!(said.contains(why) && said.contains("OBJECT:cost"), "{text}: {said}");
        }
    }
}
