//! A list of rows with columns, a filter and a sort order.

use crate::cli::top::text;

/// Space for the sort arrow beside a column's name.
const MARK: usize = 1;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli::top) struct Column {
    pub(in crate::cli::top) name: &'static str,
    /// `None`: always shown. Otherwise, the columns with the highest weight are shown first if space is short.
    pub(in crate::cli::top) weight: Option<u8>,
}

impl Column {
    pub(super) const fn always(name: &'static str) -> Self {
        Self { name, weight: None }
    }

    pub(super) const fn until(name: &'static str, weight: u8) -> Self {
        Self { name, weight: Some(weight) }
    }
}

/// Which rows are shown.
#[derive(Debug, Default)]
pub(in crate::cli::top) struct Filter {
    /// A row is shown if it has all of these words.
    pub(in crate::cli::top) text: String,
    /// The UID of the pod that the text identifies. Its row is shown too.
    pub(super) uid: Option<String>,
}

/// One row.
#[derive(Debug)]
pub(in crate::cli::top) struct Row {
    pub(in crate::cli::top) cells: Vec<String>,
    /// The cell that shows good or bad, and which of the two, if known.
    pub(in crate::cli::top) verdict: (usize, Option<bool>),
    /// The text that the filter searches.
    words: String,
}

impl Row {
    pub(super) fn new<const N: usize>(cells: [&str; N], verdict: (usize, Option<bool>)) -> Self {
        let words = cells.join(" ").to_lowercase();
        Self { cells: cells.into_iter().map(str::to_owned).collect(), verdict, words }
    }
}

/// The list of all rows.
#[derive(Debug)]
pub(in crate::cli::top) struct List {
    pub(in crate::cli::top) columns: &'static [Column],
    pub(in crate::cli::top) sorted_by: usize,
    pub(in crate::cli::top) reversed: bool,
    rows: Vec<Row>,
    /// Indexes of the filtered rows, in sort order.
    shown: Vec<usize>,
    /// The width of each column over all rows.
    widths: Vec<usize>,
}

impl List {
    pub(super) fn new(columns: &'static [Column]) -> Self {
        Self {
            columns,
            sorted_by: 0,
            reversed: false,
            rows: Vec::new(),
            shown: Vec::new(),
            widths: columns.iter().map(|column| text::width(column.name) + MARK).collect(),
        }
    }

    /// The number of all rows.
    pub(in crate::cli::top) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The number of filtered rows.
    pub(in crate::cli::top) fn matching(&self) -> usize {
        self.shown.len()
    }

    /// The filtered rows, from `first` on.
    pub(in crate::cli::top) fn from(&self, first: usize) -> impl Iterator<Item = &Row> {
        self.shown.iter().skip(first).filter_map(|row| self.rows.get(*row))
    }

    pub(in crate::cli::top) fn widths(&self) -> &[usize] {
        &self.widths
    }

    pub(super) fn set(&mut self, rows: Vec<Row>, filter: &Filter) {
        self.rows = rows;
        let cells = |i: usize| self.rows.iter().filter_map(move |row| row.cells.get(i));
        self.widths = (0..)
            .zip(self.columns)
            .map(|(i, column)| {
                cells(i).map(|cell| text::width(cell)).fold(text::width(column.name) + MARK, usize::max)
            })
            .collect();
        self.select(filter);
    }

    /// Shows only rows that match the filter.
    pub(super) fn select(&mut self, filter: &Filter) {
        let text = filter.text.to_lowercase();
        let words: Vec<_> = text.split_whitespace().collect();
        let is_found = |row: &Row| filter.uid.as_ref().is_some_and(|uid| row.cells.contains(uid));
        let rows = &self.rows;
        self.shown.clear();
        self.shown.extend(
            (0..)
                .zip(rows)
                .filter(|(_, row)| words.iter().all(|word| row.words.contains(word)) || is_found(row))
                .map(|(i, _)| i),
        );
        let by = self.sorted_by;
        let key = |row: &usize| {
            let cells = rows.get(*row).map(|row| row.cells.as_slice()).unwrap_or_default();
            let cell = |i: usize| cells.get(i).map(String::as_str);
            (cell(by), cell(0), cell(1), *row)
        };
        self.shown.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        if self.reversed {
            self.shown.reverse();
        }
    }

    pub(super) fn sort_by_next(&mut self, filter: &Filter) {
        self.sorted_by = (self.sorted_by + 1) % self.columns.len().max(1);
        self.reversed = false;
        self.select(filter);
    }

    pub(super) fn reverse(&mut self, filter: &Filter) {
        self.reversed = !self.reversed;
        self.select(filter);
    }
}
