//! The list of pods, with columns, a filter, a sort order and a selected row.

use unicode_width::UnicodeWidthStr;

/// The columns, each with its index in [`TABLE_COLUMNS`](crate::api::types::TABLE_COLUMNS). If space is short, the last
/// ones are left out.
#[rustfmt::skip]
pub(super) const COLUMNS: [(&str, usize); 14] = [
    ("NAMESPACE", 0), ("NAME", 1), ("STATUS", 8), ("READY", 7), ("RESTARTS", 9), ("AGE", 10), ("KIND", 4), ("IP", 11),
    ("WORKLOAD", 12), ("NODE", 6), ("SOURCE", 3), ("UID", 2), ("IMAGES", 13), ("LABELS", 14),
];
/// Indexes of columns.
pub(super) const NAME: usize = 1;
pub(super) const STATUS: usize = 2;
/// The creation time, which is shown as an age.
pub(super) const AGE: usize = 5;

/// One row. The first two cells identify it.
pub(super) type Row = [String; COLUMNS.len()];

/// The list of all rows.
#[derive(Debug, Default)]
pub(super) struct List {
    /// A row is shown if it has all of these words.
    pub(super) filter: String,
    pub(super) sorted_by: usize,
    pub(super) is_reversed: bool,
    rows: Vec<Row>,
    /// Indexes of the filtered rows, in sort order.
    shown: Vec<usize>,
    /// The place of the selected row.
    pub(super) selected: usize,
    /// The first row on the screen.
    pub(super) first: usize,
    /// The width of each column over all rows.
    pub(super) widths: Vec<usize>,
    /// The number of columns that fit.
    columns: usize,
}

impl List {
    /// The number of all rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The number of filtered rows.
    pub(super) fn matching(&self) -> usize {
        self.shown.len()
    }

    /// The filtered rows, from this one on.
    pub(super) fn from(&self, first: usize) -> impl Iterator<Item = &Row> {
        self.shown.iter().skip(first).filter_map(|row| self.rows.get(*row))
    }

    pub(super) fn selected(&self) -> Option<&Row> {
        self.from(self.selected).next()
    }

    pub(super) fn set(&mut self, rows: Vec<Row>) {
        let selected = self.selected().cloned();
        self.rows = rows;
        let width = |at: usize| self.rows.iter().map(|row| row[at].width()).max();
        self.widths = (0..COLUMNS.len()).map(|at| width(at).unwrap_or_default()).collect();
        self.arrange(selected.as_ref());
    }

    /// Shows only rows that match the filter, in the sort order. The same row stays selected.
    pub(super) fn select(&mut self) {
        let selected = self.selected().cloned();
        self.arrange(selected.as_ref());
    }

    fn arrange(&mut self, selected: Option<&Row>) {
        let text = self.filter.to_lowercase();
        let words: Vec<_> = text.split_whitespace().collect();
        let matches =
            |row: &Row| words.iter().all(|word| row.iter().any(|cell| cell.to_lowercase().contains(word)));
        let (rows, by) = (&self.rows, self.sorted_by);
        self.shown.clear();
        self.shown.extend((0..).zip(rows).filter(|(_, row)| matches(row)).map(|(at, _)| at));
        let key = |at: &usize| {
            let cell = |column: usize| rows.get(*at).map(|row| order(&row[column]));
            (cell(by), cell(0), cell(1), *at)
        };
        self.shown.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        if self.is_reversed {
            self.shown.reverse();
        }
        let is_same = |row: &Row| selected.is_some_and(|selected| selected[..2] == row[..2]);
        let place = self.from(0).position(is_same);
        self.selected = place.unwrap_or(self.selected).min(self.shown.len().saturating_sub(1));
    }

    /// Notes how many columns fit. The rows are sorted by one of them.
    pub(super) fn fit(&mut self, columns: usize) {
        self.columns = columns;
        if self.sorted_by >= columns.max(1) {
            (self.sorted_by, self.is_reversed) = (0, false);
            self.select();
        }
    }

    pub(super) fn sort_by_next(&mut self) {
        self.sorted_by = (self.sorted_by + 1) % self.columns.max(1);
        self.is_reversed = false;
        self.select();
    }

    pub(super) fn reverse(&mut self) {
        self.is_reversed = !self.is_reversed;
        self.select();
    }
}

/// Numbers are sorted by their value, everything else after them as text.
fn order(cell: &str) -> (u64, &str) {
    let digits = cell.find(|c: char| !c.is_ascii_digit()).unwrap_or(cell.len());
    (cell[..digits].parse().unwrap_or(u64::MAX), cell)
}
