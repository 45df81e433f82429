//! The state of the view: data, filter, sort order, position. Pure: keys and responses in, no I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use k8s_openapi::jiff::Timestamp;
use pod_index::PodUid;

use crate::api::seen::Sources;

/// The columns, each with its index in [`TABLE_COLUMNS`](crate::api::types::TABLE_COLUMNS). If space is short, the last
/// ones are left out.
#[rustfmt::skip]
pub(super) const COLUMNS: [(&str, usize); 14] = [
    ("NAMESPACE", 0), ("NAME", 1), ("STATUS", 8), ("READY", 7), ("RESTARTS", 9), ("AGE", 10), ("IP", 11), ("KIND", 4),
    ("WORKLOAD", 12), ("NODE", 6), ("SOURCE", 3), ("UID", 2), ("IMAGES", 13), ("LABELS", 14),
];
/// Indexes of columns.
pub(super) const NAME: usize = 1;
pub(super) const STATUS: usize = 2;
/// The creation time, which is shown as an age.
pub(super) const AGE: usize = 5;
pub(super) const IP: usize = 6;
/// Maximum length of the filter; longer than any name.
const LONGEST: usize = 512;

/// One row. The first two cells identify it.
pub(super) type Row = [String; COLUMNS.len()];

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) server: String,
    /// Whether the columns of the selected pod are shown instead of the list.
    pub(super) is_open: bool,
    /// Whether the filter is being typed.
    pub(super) is_typing: bool,
    pub(super) pods: BTreeMap<PodUid, Arc<Row>>,
    /// Why the pods are not followed.
    pub(super) pods_problem: Option<String>,
    pub(super) sources: Sources,
    /// Time of the last response.
    pub(super) answered: Option<Timestamp>,
    /// Why the agent does not answer.
    pub(super) problem: Option<String>,
    /// A row is shown if it has all of these words.
    pub(super) filter: String,
    pub(super) sorted_by: usize,
    pub(super) is_reversed: bool,
    /// The filtered rows, in the sort order, as of the last frame.
    pub(super) shown: Vec<Arc<Row>>,
    /// The place of the selected row among these.
    pub(super) selected: usize,
    /// The first row on the screen.
    pub(super) first: usize,
    /// The numbers of rows and of columns that fit, as of the last frame.
    pub(super) room: usize,
    pub(super) columns: usize,
}

impl Model {
    /// Handles a response or a failure. After a failure, the last data stays.
    pub(super) fn hear(&mut self, answer: Result<Sources, String>, now: Timestamp) {
        match answer {
            Ok(sources) => {
                self.sources = sources;
                self.answered = Some(now);
                self.problem = None;
            }
            Err(problem) => self.problem = Some(problem),
        }
    }

    /// Finds the rows to show. The same row stays selected.
    pub(super) fn arrange(&mut self) {
        let selected = self.shown.get(self.selected).cloned();
        let text = self.filter.to_lowercase();
        let has = |row: &Row, word| row.iter().any(|cell| cell.to_lowercase().contains(word));
        let rows = self.pods.values().filter(|row| text.split_whitespace().all(|word| has(row, word)));
        self.shown = rows.cloned().collect();
        let by = [self.sorted_by, 0, 1];
        self.shown.sort_by(|a, b| by.map(|at| order(&a[at])).cmp(&by.map(|at| order(&b[at]))));
        if self.is_reversed {
            self.shown.reverse();
        }
        let is_same = |row: &Arc<Row>| selected.as_ref().is_some_and(|selected| selected[..2] == row[..2]);
        let place = self.shown.iter().position(is_same).unwrap_or(self.selected);
        self.selected = place.min(self.shown.len().saturating_sub(1));
    }

    /// Handles a key. Returns whether the user leaves.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_control => return true,
            _ if self.is_typing => self.typed(key.code, with_control),
            KeyCode::Enter => self.is_open = !self.is_open && !self.shown.is_empty(),
            KeyCode::Char('q') | KeyCode::Esc if self.is_open => self.is_open = false,
            KeyCode::Esc if !self.filter.is_empty() => self.typed(KeyCode::Esc, false),
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Down | KeyCode::Char('j') => self.go(|at, _| at.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.go(|at, _| at.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.go(usize::saturating_add),
            KeyCode::PageUp => self.go(usize::saturating_sub),
            KeyCode::Home | KeyCode::Char('g') => self.go(|_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.go(|_, _| usize::MAX),
            _ if self.is_open => {}
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') => {
                (self.sorted_by, self.is_reversed) = ((self.sorted_by + 1) % self.columns.max(1), false);
            }
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            _ => {}
        }
        false
    }

    /// Moves the selection. `to` gets the place and the number of rows that fit.
    fn go(&mut self, to: fn(usize, usize) -> usize) {
        self.selected = to(self.selected, self.room).min(self.shown.len().saturating_sub(1));
    }

    fn typed(&mut self, code: KeyCode, with_control: bool) {
        let filter = &mut self.filter;
        let before = filter.clone();
        match code {
            KeyCode::Enter | KeyCode::Tab => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                filter.clear();
            }
            KeyCode::Char('u') if with_control => filter.clear(),
            KeyCode::Backspace => drop(filter.pop()),
            KeyCode::Char(c) if !with_control && filter.len() < LONGEST => filter.push(c),
            _ => return,
        }
        if *filter != before {
            // Begin at the top.
            self.shown.clear();
            self.selected = 0;
        }
    }
}

/// Numbers are sorted by their value, everything else after them as text.
fn order(cell: &str) -> (u64, &str) {
    let digits = cell.find(|c: char| !c.is_ascii_digit()).unwrap_or(cell.len());
    (cell[..digits].parse().unwrap_or(u64::MAX), cell)
}
