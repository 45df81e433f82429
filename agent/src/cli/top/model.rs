//! The state of the view: data, filter, sort order, position. Pure: keys and responses in, no I/O.

use std::time::{Instant, SystemTime};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::ask::Seen;
use super::list::{List, UID};
use crate::api::seen::Sources;

/// Maximum length of the filter; longer than any name.
const LONGEST: usize = 512;

/// What is shown instead of the list until it is closed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Page {
    Keys,
    /// The columns of the selected pod.
    Pod,
    /// A pod by its UID, and the answer.
    Yaml(String, Option<Result<String, String>>),
}

/// A moment: on the monotonic clock for measuring, and on the wall clock for display.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) steady: Instant,
    pub(super) wall: SystemTime,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { steady: Instant::now(), wall: SystemTime::now() }
    }
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) server: String,
    pub(super) page: Option<Page>,
    /// Whether the filter is being typed.
    pub(super) is_typing: bool,
    pub(super) pods: List,
    pub(super) sources: Sources,
    /// Why the pods are not followed.
    pub(super) pods_problem: Option<String>,
    /// Time of the last response.
    pub(super) answered: Option<Instant>,
    /// Why the agent does not answer.
    pub(super) problem: Option<String>,
    /// The first line of a text, and the number of lines that fit, as of the last frame.
    pub(super) scroll: usize,
    pub(super) room: usize,
}

impl Model {
    /// The initial state for the agent on `server`.
    pub(super) fn new(server: String) -> Self {
        Self { server, room: 1, ..Self::default() }
    }

    /// Handles a response or a failure. After a failure, the last data stays.
    pub(super) fn hear(&mut self, answer: Result<Sources, String>, now: Instant) {
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

    /// The UID of the pod that the agent has to be asked for.
    pub(super) fn wanted(&self) -> Option<String> {
        match &self.page {
            Some(Page::Yaml(uid, _)) => Some(uid.clone()),
            _ => None,
        }
    }

    /// Shows the pod with this UID, if it is still wanted.
    pub(super) fn read(&mut self, uid: &str, text: Result<String, String>) {
        if let Some(Page::Yaml(wanted, answer)) = &mut self.page
            && wanted == uid
        {
            *answer = Some(text);
        }
    }

    /// Handles a key. Returns whether the user leaves.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_control => return true,
            _ if self.is_typing => self.typed(key.code, with_control),
            KeyCode::Esc if self.page.is_none() && !self.pods.filter.is_empty() => {
                self.typed(KeyCode::Esc, false);
            }
            KeyCode::Char('q') | KeyCode::Esc if self.page.is_none() => return true,
            KeyCode::Char('q') | KeyCode::Esc => self.open(None),
            KeyCode::Char('?') if self.page == Some(Page::Keys) => self.open(None),
            KeyCode::Down | KeyCode::Char('j') => self.go(|at, _| at.saturating_add(1)),
            KeyCode::Up | KeyCode::Char('k') => self.go(|at, _| at.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.go(usize::saturating_add),
            KeyCode::PageUp => self.go(usize::saturating_sub),
            KeyCode::Home | KeyCode::Char('g') => self.go(|_, _| 0),
            // To the end. Drawing limits it to the last line.
            KeyCode::End | KeyCode::Char('G') => self.go(|_, _| usize::MAX),
            KeyCode::Char('?') => self.open(Some(Page::Keys)),
            KeyCode::Enter if self.page.is_some() => self.open(None),
            KeyCode::Enter if self.pods.matching() > 0 => self.open(Some(Page::Pod)),
            KeyCode::Char('y') => {
                if let Some(row) = self.pods.selected() {
                    self.open(Some(Page::Yaml(row[UID].clone(), None)));
                }
            }
            _ if self.page.is_some() => {}
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') => self.pods.sort_by_next(),
            KeyCode::Char('r') => self.pods.reverse(),
            _ => {}
        }
        false
    }

    /// Moves the selection of a list, or scrolls a text. `to` gets the place and the number of lines that fit.
    fn go(&mut self, to: fn(usize, usize) -> usize) {
        if self.page.is_none() {
            self.pods.selected =
                to(self.pods.selected, self.room).min(self.pods.matching().saturating_sub(1));
        } else {
            self.scroll = to(self.scroll, self.room);
        }
    }

    fn open(&mut self, page: Option<Page>) {
        self.page = page;
        self.scroll = 0;
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
