//! The state of the view: data, filter, sort order, position. Pure: keys and responses in, no I/O.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use k8s_openapi::jiff::Timestamp;

use super::ask::Seen;
use super::list::List;
use crate::api::seen::Sources;

/// Maximum length of the filter; longer than any name.
const LONGEST: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) server: String,
    /// Whether the columns of the selected pod are shown instead of the list.
    pub(super) is_open: bool,
    /// Whether the filter is being typed.
    pub(super) is_typing: bool,
    pub(super) pods: List,
    pub(super) sources: Sources,
    /// Why the pods are not followed.
    pub(super) pods_problem: Option<String>,
    /// Time of the last response.
    pub(super) answered: Option<Timestamp>,
    /// Why the agent does not answer.
    pub(super) problem: Option<String>,
    /// The number of rows that fit, as of the last frame.
    pub(super) room: usize,
}

impl Model {
    /// The initial state for the agent on `server`.
    pub(super) fn new(server: String) -> Self {
        Self { server, room: 1, ..Self::default() }
    }

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

    /// Shows these pods.
    pub(super) fn list(&mut self, seen: &Seen) {
        self.pods_problem.clone_from(&seen.problem);
        self.pods.set(seen.pods.values().cloned().collect());
    }

    /// Handles a key. Returns whether the user leaves.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_control => return true,
            _ if self.is_typing => self.typed(key.code, with_control),
            KeyCode::Enter => self.is_open = !self.is_open && self.pods.matching() > 0,
            KeyCode::Char('q') | KeyCode::Esc if self.is_open => self.is_open = false,
            KeyCode::Esc if !self.pods.filter.is_empty() => self.typed(KeyCode::Esc, false),
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Down | KeyCode::Char('j') => self.go(|at, _| at.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.go(|at, _| at.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.go(usize::saturating_add),
            KeyCode::PageUp => self.go(usize::saturating_sub),
            KeyCode::Home | KeyCode::Char('g') => self.go(|_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.go(|_, _| usize::MAX),
            _ if self.is_open => {}
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') => self.pods.sort_by_next(),
            KeyCode::Char('r') => self.pods.reverse(),
            _ => {}
        }
        false
    }

    /// Moves the selection. `to` gets the place and the number of rows that fit.
    fn go(&mut self, to: fn(usize, usize) -> usize) {
        self.pods.selected = to(self.pods.selected, self.room).min(self.pods.matching().saturating_sub(1));
    }

    fn typed(&mut self, code: KeyCode, with_control: bool) {
        let filter = &mut self.pods.filter;
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
            self.pods.select();
            self.pods.selected = 0;
        }
    }
}
