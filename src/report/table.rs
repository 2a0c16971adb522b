//! A table that fits the terminal: columns of least importance are left out, then one column is cut in the
//! middle. Nothing is wrapped.

use std::collections::HashSet;
use std::ops::Range;

use comfy_table::{Attribute, LineStyle};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, TableStyle};

use super::units::{least_with_end, middle, printable};

/// Space between columns.
const GAP: usize = 2;
/// Of it, what the table's style puts between columns.
const JUNCTION: u16 = 1;

/// A table of any width with the columns `right` aligned right.
pub(super) fn plain(head: &[&str], rows: impl Iterator<Item = Vec<String>>, right: Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head).add_rows(rows.map(|row| row.iter().map(|cell| printable(cell)).collect::<Vec<_>>()));
    for column in right {
        if let Some(c) = table.column_mut(column) {
            c.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// One column.
#[derive(Debug)]
pub(super) struct Column {
    /// Heading.
    pub head: &'static str,
    /// Numbers stand right.
    pub right: bool,
    /// 0 is always shown; the highest goes first when the width does not do.
    pub rank: u8,
    /// One cell per row.
    pub cells: Vec<String>,
}

impl Column {
    /// Cells are one line each, see [`printable`].
    pub(super) fn new(head: &'static str, right: bool, rank: u8, cells: Vec<String>) -> Column {
        let cells = cells.iter().map(|cell| printable(cell)).collect();
        Column { head, right, rank, cells }
    }

    fn width(&self) -> usize {
        self.cells.iter().map(|c| c.chars().count()).chain([self.head.len()]).max().unwrap_or(0)
    }
}

/// Characters of a column of names at which all that differ still do after they are cut, and no end is that tells most;
/// `least` and more, and at most `most`. If that does not do for all, names need not differ.
fn telling_apart(names: &[String], least: usize, most: usize) -> usize {
    let least = names.iter().map(|name| least_with_end(name)).max().unwrap_or(0).min(most).max(least);
    let all = names.iter().collect::<HashSet<_>>().len();
    let distinct = |width: usize| names.iter().map(|name| middle(name, width)).collect::<HashSet<_>>().len();
    (least..=most).find(|&width| distinct(width) == all).unwrap_or(least)
}

/// Lays out `columns`; column 0 is the name, which takes what is left, at least `min_name` characters, and up
/// to half of the width if names need them to be told apart.
/// Returns the text and the headings that found no room.
pub(super) fn fit(mut columns: Vec<Column>, width: usize, min_name: usize, color: bool) -> (String, Vec<&'static str>) {
    let mut hidden = Vec::new();
    let rest = |columns: &[Column]| columns[1..].iter().map(|c| c.width() + GAP).sum::<usize>();
    let wanted = telling_apart(&columns[0].cells, min_name, (width / 2).max(min_name)).min(columns[0].width());
    while wanted + rest(&columns) > width {
        let last = (1..columns.len()).filter(|&i| columns[i].rank > 0).max_by_key(|&i| columns[i].rank);
        let Some(last) = last else { break };
        hidden.push(columns.remove(last).head);
    }
    let name_width = width.saturating_sub(rest(&columns)).max(columns[0].head.len()).min(columns[0].width());
    for cell in &mut columns[0].cells {
        *cell = middle(cell, name_width);
    }
    hidden.reverse();
    (draw(&columns, color), hidden)
}

fn draw(columns: &[Column], color: bool) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('-').junction('-')));
    table.set_content_arrangement(ContentArrangement::Disabled);
    if color {
        table.enforce_styling()
    } else {
        table.force_no_tty()
    };
    let bold = |cell: Cell| if color { cell.add_attribute(Attribute::Bold) } else { cell };
    table.set_header(columns.iter().map(|c| bold(Cell::new(c.head))));
    for row in 0..columns[0].cells.len() {
        table.add_row(columns.iter().map(|c| Cell::new(c.cells.get(row).map_or("", |s| s.as_str()))));
    }
    for (i, column) in columns.iter().enumerate() {
        if let Some(c) = table.column_mut(i) {
            let last = i + 1 == columns.len();
            c.set_padding((0, if last { 0 } else { GAP as u16 - JUNCTION }));
            c.set_cell_alignment(if column.right { CellAlignment::Right } else { CellAlignment::Left });
        }
    }
    let mut out = String::new();
    for line in table.lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_do_so_after_they_are_cut() {
        let names = |ends: [&str; 3]| ends.map(|end| format!("exchange_boundary_values{end}_of_all_fields")).to_vec();
        let few = |width: usize, names: &[String]| {
            names.iter().map(|n| middle(n, width)).collect::<HashSet<_>>().len() < names.len()
        };
        let three = names(["_left", "_right", "_upper"]);
        let width = telling_apart(&three, 10, 60);
        assert!(width < 46 && !few(width, &three) && few(width - 1, &three), "{width}");
        let same = names(["", "", ""]);
        assert_eq!(telling_apart(&same, 10, 60), 10, "names that are equal need no room");
        assert_eq!(telling_apart(&three, 10, 12), 10, "nothing up to 12 characters does");
        let part = vec!["main application.c:16 [12772 KiB..36.9 MiB]".to_owned()];
        assert_eq!(middle(&part[0], telling_apart(&part, 10, 40)), "main a.. [12772 KiB..36.9 MiB]");
        let place = vec!["solver::Dictionary::Dictionary dictionary.cc:28 (small)".to_owned()];
        assert_eq!(middle(&place[0], telling_apart(&place, 10, 40)), "so.. dictionary.cc:28 (small)");
        assert_eq!(telling_apart(&["solve (small)".to_owned(), "a:1".to_owned()], 10, 40), 10);
    }
}
