//! A list of rows with columns, a filter, a sort order and a selected row.

use unicode_width::UnicodeWidthStr;

/// A column. If space is short, the columns with the highest weight are shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) weight: u8,
}

/// Which rows are shown.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// A row is shown if it has all of these words.
    pub(super) text: String,
    /// The UID of the pod that the text identifies. Its row is shown too.
    pub(super) uid: Option<String>,
}

/// One row. The first two cells identify it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    /// The cells that show good or bad.
    pub(super) verdicts: Vec<(usize, bool)>,
}

/// The list of all rows.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) columns: &'static [Column],
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
}

impl List {
    pub(super) fn new(columns: &'static [Column]) -> Self {
        Self { columns, ..Self::default() }
    }

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

    pub(super) fn set(&mut self, rows: Vec<Row>, filter: &Filter) {
        let selected = self.selected().cloned();
        self.rows = rows;
        let width = |at: usize| self.rows.iter().filter_map(|row| Some(row.cells.get(at)?.width())).max();
        self.widths = (0..self.columns.len()).map(|at| width(at).unwrap_or_default()).collect();
        self.arrange(filter, selected.as_ref());
    }

    /// Shows only rows that match the filter, in the sort order. The same row stays selected.
    pub(super) fn select(&mut self, filter: &Filter) {
        let selected = self.selected().cloned();
        self.arrange(filter, selected.as_ref());
    }

    fn arrange(&mut self, filter: &Filter, selected: Option<&Row>) {
        let text = filter.text.to_lowercase();
        let words: Vec<_> = text.split_whitespace().collect();
        let matches = |row: &Row| {
            let has = |word: &&str| row.cells.iter().any(|cell| cell.to_lowercase().contains(word));
            words.iter().all(has) || filter.uid.as_ref().is_some_and(|uid| row.cells.contains(uid))
        };
        let (rows, by) = (&self.rows, self.sorted_by);
        self.shown.clear();
        self.shown.extend((0..).zip(rows).filter(|(_, row)| matches(row)).map(|(at, _)| at));
        let key = |at: &usize| {
            let cell =
                |column: usize| rows.get(*at).and_then(|row| row.cells.get(column)).map(|cell| order(cell));
            (cell(by), cell(0), cell(1), *at)
        };
        self.shown.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        if self.is_reversed {
            self.shown.reverse();
        }
        let is_same = |row: &Row| selected.is_some_and(|selected| selected.cells[..2] == row.cells[..2]);
        let place = self.from(0).position(is_same);
        self.selected = place.unwrap_or(self.selected).min(self.shown.len().saturating_sub(1));
    }

    pub(super) fn sort_by_next(&mut self) {
        self.sorted_by = (self.sorted_by + 1) % self.columns.len().max(1);
        self.is_reversed = false;
    }

    pub(super) fn reverse(&mut self) {
        self.is_reversed = !self.is_reversed;
    }
}

/// Numbers are sorted by their value, everything else after them as text.
fn order(cell: &str) -> (u64, &str) {
    let digits = cell.find(|c: char| !c.is_ascii_digit()).unwrap_or(cell.len());
    (cell[..digits].parse().unwrap_or(u64::MAX), cell)
}
