//! Rows of one table, kept by column: the order in which Parquet writes them.

use std::collections::HashMap;

use numamma_kernel::terminal;

use super::schema::{Table, Type};

/// One value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Not known, or without meaning in this row.
    Null,
    /// Text of any origin when a row is added; escaped when it is read.
    Text(&'a str),
    /// A whole number.
    Int(i64),
    /// Any number.
    Real(f64),
    /// Yes or no.
    Flag(bool),
}

impl From<u64> for Value<'_> {
    fn from(n: u64) -> Self {
        Value::Int(i64::try_from(n).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value<'_> {
    fn from(n: u32) -> Self {
        Value::Int(n.into())
    }
}

impl From<f64> for Value<'_> {
    fn from(x: f64) -> Self {
        Value::Real(x)
    }
}

impl From<bool> for Value<'_> {
    fn from(is: bool) -> Self {
        Value::Flag(is)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(text)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// The values of one column that are not null.
#[derive(Debug)]
pub enum Values {
    /// See [`Texts`].
    Text(Texts),
    /// Whole numbers.
    Int(Vec<i64>),
    /// Numbers.
    Real(Vec<f64>),
    /// Flags.
    Flag(Vec<bool>),
}

/// Texts, each different one once.
#[derive(Debug, Default)]
pub struct Texts {
    /// The different ones, escaped.
    pub words: Vec<String>,
    /// An index of `words` for each row.
    pub of_rows: Vec<u32>,
    /// By the text as it came.
    known: HashMap<String, u32>,
    /// The one that came last, which often comes again.
    last: Option<(String, u32)>,
}

impl Texts {
    /// Adds a row, and gives the index of its text.
    fn push(&mut self, text: &str) -> u32 {
        let index = match &self.last {
            Some((last, index)) if last == text => *index,
            _ => {
                let index = self.known.get(text).copied().unwrap_or_else(|| {
                    let new = self.words.len() as u32;
                    self.words.push(terminal::line(text).into_owned());
                    self.known.insert(text.to_owned(), new);
                    new
                });
                self.last = Some((text.to_owned(), index));
                index
            }
        };
        self.of_rows.push(index);
        index
    }
}

/// One column.
#[derive(Debug)]
pub struct Cells {
    /// What is not null.
    pub values: Values,
    /// Of each row 1 where there is a value and 0 where it is null; empty where the column has no nulls.
    pub levels: Vec<i16>,
}

/// Rows of a table.
#[derive(Debug)]
pub struct Batch {
    table: &'static Table,
    columns: Vec<Cells>,
    rows: usize,
}

impl Batch {
    /// No rows of a table.
    pub fn of(table: &'static Table) -> Batch {
        let empty = |holds: Type| match holds {
            Type::Text => Values::Text(Texts::default()),
            Type::Int => Values::Int(Vec::new()),
            Type::Real => Values::Real(Vec::new()),
            Type::Flag => Values::Flag(Vec::new()),
        };
        let columns = table.columns.iter().map(|c| Cells { values: empty(c.holds), levels: Vec::new() });
        Batch { table, columns: columns.collect(), rows: 0 }
    }

    /// The table.
    pub fn table(&self) -> &'static Table {
        self.table
    }

    /// How many there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns, in the order of the table.
    pub fn columns(&self) -> &[Cells] {
        &self.columns
    }

    /// Removes all rows, and keeps the memory for the next.
    pub fn clear(&mut self) {
        self.rows = 0;
        for column in &mut self.columns {
            column.levels.clear();
            match &mut column.values {
                Values::Text(texts) => *texts = Texts::default(),
                Values::Int(values) => values.clear(),
                Values::Real(values) => values.clear(),
                Values::Flag(values) => values.clear(),
            }
        }
    }

    /// Adds a row. It has a value for each column, of the column's type, and null only where the column may be.
    pub fn push(&mut self, row: &[Value<'_>]) {
        debug_assert_eq!(row.len(), self.columns.len(), "{}", self.table.name);
        self.rows += 1;
        for ((cells, column), value) in self.columns.iter_mut().zip(self.table.columns).zip(row) {
            let is_null = matches!(value, Value::Null);
            debug_assert!(column.null || !is_null, "{}.{}", self.table.name, column.name);
            if column.null {
                cells.levels.push(i16::from(!is_null));
                if is_null {
                    continue;
                }
            }
            match (&mut cells.values, *value) {
                (Values::Int(values), Value::Int(n)) => values.push(n),
                (Values::Real(values), Value::Real(x)) => values.push(x),
                (Values::Flag(values), Value::Flag(is)) => values.push(is),
                (Values::Text(texts), Value::Text(text)) => drop(texts.push(text)),
                (_, value) => debug_assert!(false, "{}.{}: {value:?}", self.table.name, column.name),
            }
        }
    }

    /// Adds rows column by column, which takes a fraction of the time that single rows do.
    pub fn fill(&mut self, rows: usize) -> Filling<'_> {
        self.rows += rows;
        Filling { table: self.table, columns: self.columns.iter_mut(), rows }
    }

    /// Calls `each` with every row.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn each<E>(&self, mut each: impl FnMut(&[Value<'_>]) -> Result<(), E>) -> Result<(), E> {
        let mut at = vec![0; self.columns.len()];
        let mut row = vec![Value::Null; self.columns.len()];
        for number in 0..self.rows {
            for ((cells, at), value) in self.columns.iter().zip(&mut at).zip(&mut row) {
                if cells.levels.get(number) == Some(&0) {
                    *value = Value::Null;
                    continue;
                }
                *value = match &cells.values {
                    Values::Text(texts) => Value::Text(&texts.words[texts.of_rows[*at] as usize]),
                    Values::Int(values) => Value::Int(values[*at]),
                    Values::Real(values) => Value::Real(values[*at]),
                    Values::Flag(values) => Value::Flag(values[*at]),
                };
                *at += 1;
            }
            each(&row)?;
        }
        Ok(())
    }
}

/// Rows that are being added: each call gives the values of the next column.
pub struct Filling<'a> {
    table: &'static Table,
    columns: std::slice::IterMut<'a, Cells>,
    rows: usize,
}

impl Filling<'_> {
    /// One value for all rows.
    pub fn same(mut self, value: Value<'_>) -> Self {
        let (rows, table) = (self.rows, self.table);
        let Some((cells, can_be_null)) = self.next() else { return self };
        let is_null = matches!(value, Value::Null);
        if can_be_null {
            cells.levels.extend(std::iter::repeat_n(i16::from(!is_null), rows));
        }
        match (&mut cells.values, value) {
            (Values::Int(values), Value::Int(n)) => values.extend(std::iter::repeat_n(n, rows)),
            (Values::Text(texts), Value::Text(text)) if rows > 0 => {
                let word = texts.push(text);
                texts.of_rows.extend(std::iter::repeat_n(word, rows - 1));
            }
            (_, value) => debug_assert!(is_null || rows == 0, "{}: {value:?}", table.name),
        }
        self
    }

    /// A whole number for each row.
    pub fn ints(mut self, numbers: impl Iterator<Item = u64>) -> Self {
        let (rows, table) = (self.rows, self.table);
        let Some((cells, can_be_null)) = self.next() else { return self };
        if can_be_null {
            cells.levels.extend(std::iter::repeat_n(1, rows));
        }
        match &mut cells.values {
            Values::Int(values) => values.extend(numbers.map(|n| i64::try_from(n).unwrap_or(i64::MAX))),
            other => debug_assert!(false, "{}: {other:?}", table.name),
        }
        self
    }

    /// A whole number for each row that has one.
    pub fn known(mut self, numbers: impl Iterator<Item = Option<u32>>) -> Self {
        let table = self.table;
        let Some((cells, can_be_null)) = self.next() else { return self };
        debug_assert!(can_be_null, "{}", table.name);
        match &mut cells.values {
            Values::Int(values) => {
                for number in numbers {
                    cells.levels.push(i16::from(number.is_some()));
                    values.extend(number.map(i64::from));
                }
            }
            other => debug_assert!(false, "{}: {other:?}", table.name),
        }
        self
    }

    fn next(&mut self) -> Option<(&mut Cells, bool)> {
        let at = self.table.columns.len() - self.columns.len();
        Some((self.columns.next()?, self.table.columns.get(at)?.null))
    }
}
