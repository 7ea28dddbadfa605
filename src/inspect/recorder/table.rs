//! Tables of state that is not the recorder's own, such as that of the pool.

/// A table of texts below the calls of a [`Snapshot`](super::Snapshot), for state of the program.
///
/// ```
/// use speeddial::inspect::{Recorder, StateTable};
///
/// let mut snapshot = Recorder::new().snapshot();
/// snapshot.add_table(StateTable::new("Queues", ["name", "length"]).row(["mails", "12"]));
/// assert!(snapshot.to_html().contains("mails"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateTable {
    pub(super) title: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// The number of rows beyond those that are kept.
    pub(super) left_out: usize,
}

/// The most rows of a table.
const MAX_ROWS: usize = 1_000;
/// The most characters of a text in a table.
const MAX_TEXT: usize = 256;

impl StateTable {
    /// Creates a table without rows.
    pub fn new<const N: usize>(title: impl Into<String>, columns: [&str; N]) -> Self {
        let columns = columns.map(str::to_owned).into();
        Self { title: title.into(), columns, rows: Vec::new(), left_out: 0 }
    }

    /// Adds a row. Texts are cut to 256 characters, and rows beyond 1,000 are counted only.
    pub fn row<T: Into<String>>(mut self, texts: impl IntoIterator<Item = T>) -> Self {
        if self.rows.len() < MAX_ROWS {
            let texts = texts.into_iter().take(self.columns.len());
            self.rows.push(texts.map(|text| crate::trace::cut(text.into(), MAX_TEXT)).collect());
        } else {
            self.left_out += 1;
        }
        self
    }

    /// Says whose state it is.
    pub(in crate::inspect) fn of(mut self, name: &str) -> Self {
        self.title = format!("{} of {name}", self.title);
        self
    }

    /// Returns the table's title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns the rows, each with a text for each column.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_texts_are_bounded() {
        let table = StateTable::new("Many", ["number", "text"]);
        let table = (0..1_500).fold(table, |table, number| table.row([number.to_string(), "x".repeat(1_000)]));
        assert_eq!((table.rows().len(), table.left_out), (MAX_ROWS, 500));
        assert_eq!(table.rows()[0][1].chars().count(), MAX_TEXT);
    }
}
