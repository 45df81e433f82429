//! The state of the view: data, filter, sort order, position. Pure: keys and responses in, no I/O.

use std::collections::HashMap;
use std::time::{Instant, SystemTime};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::ask::{Cells, Round, Seen, Wanted};
use super::list::{Column, Filter, List, Row};
use crate::api::seen::{Pair, Sources};

/// Maximum length of the filter; longer than any name.
const LONGEST: usize = 512;

const fn column(name: &'static str, weight: u8) -> Column {
    Column { name, weight }
}

#[rustfmt::skip]
const POD_COLUMNS: [Column; 15] = [
    column("NAMESPACE", 15), column("NAME", 14), column("READY", 12), column("STATUS", 13), column("RESTARTS", 11),
    column("AGE", 10), column("MIRROR", 9), column("KIND", 8), column("IP", 7), column("NODE", 5), column("SOURCE", 4),
    column("WORKLOAD", 6), column("UID", 3), column("IMAGES", 2), column("LABELS", 1),
];
/// Where the cells of a row are in [`Cells`]. Those of an agent do not have the mirror.
const CELLS: [usize; POD_COLUMNS.len()] = [0, 1, 7, 8, 9, 10, usize::MAX, 4, 11, 6, 3, 12, 2, 13, 14];
/// The column of the creation time, which is shown as an age.
pub(super) const AGE: &str = "AGE";
/// Indexes of columns of pods.
const STATUS: usize = 3;
const MIRROR: usize = 6;
const KIND: usize = 7;
const UID: usize = 12;

#[rustfmt::skip]
const FINE: [&str; 8] = [
    "Pending", "Running", "Succeeded", "Completed", "Terminating", "ContainerCreating", "PodInitializing",
    "SchedulingGated",
];

#[rustfmt::skip]
const PAIR_COLUMNS: [Column; 6] = [
    column("NAMESPACE", 6), column("NAME", 5), column("MIRROR", 4), column("NEXT STEP", 3), column("POD UID", 2),
    column("MIRROR UID", 1),
];

/// The selected view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    #[default]
    Pods,
    Mirrors,
    Sources,
}

const VIEWS: [View; 3] = [View::Pods, View::Mirrors, View::Sources];

/// What is shown instead of the view until it is closed.
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
    pub(super) view: View,
    pub(super) page: Option<Page>,
    pub(super) filter: Filter,
    /// Whether the filter is being typed.
    pub(super) is_typing: bool,
    pub(super) pods: List,
    pub(super) pairs: List,
    pub(super) sources: Sources,
    pub(super) static_pods: usize,
    /// The number of static pods, and how many have the expected mirror.
    pub(super) mirrored: (usize, usize),
    /// Why mirror pods are not managed, or what prevents the kubelet check.
    pub(super) mirror_problem: Option<String>,
    /// Why the pods are not followed.
    pub(super) pods_problem: Option<String>,
    /// Time of the last response.
    pub(super) answered: Option<Moment>,
    /// Why the agent does not answer.
    pub(super) problem: Option<String>,
    /// The first line of a text, and the number of lines that fit, as of the last frame.
    pub(super) scroll: usize,
    pub(super) room: usize,
    known_pairs: Vec<Pair>,
}

impl Model {
    /// The initial state for the agent on `server`.
    pub(super) fn new(server: String) -> Self {
        let [pods, pairs] = [List::new(&POD_COLUMNS), List::new(&PAIR_COLUMNS)];
        Self { server, pods, pairs, room: 1, ..Self::default() }
    }

    /// Handles a response or a failure. After a failure, the last data stays.
    pub(super) fn hear(&mut self, answer: Result<Round, String>, now: Moment, seen: &Seen) {
        let Round { mirrors, sources } = match answer {
            Ok(round) => round,
            Err(problem) => {
                self.problem = Some(problem);
                return;
            }
        };
        self.problem = None;
        self.answered = Some(now);
        self.sources = sources;
        self.mirror_problem = mirrors.problem;
        let pairs: Vec<_> = mirrors.orphans.into_iter().chain(mirrors.pods).collect();
        if pairs != self.known_pairs {
            self.known_pairs = pairs;
            self.list(seen);
        }
    }

    /// Builds the rows.
    pub(super) fn list(&mut self, seen: &Seen) {
        let by_uid: HashMap<&str, &Pair> =
            self.known_pairs.iter().flat_map(|pair| pair.uids().map(move |uid| (uid, pair))).collect();
        let pods: Vec<_> = seen.pods.values().filter_map(|cells| pod(cells, &by_uid)).collect();
        self.static_pods = pods.iter().filter(|row| row.cells[KIND] == "static").count();
        let pairs = self.known_pairs.iter().filter(|pair| pair.pod_uid.is_some());
        let good = pairs.clone().filter(|pair| pair.is_good() == Some(true)).count();
        self.mirrored = (good, pairs.count());
        self.pods_problem.clone_from(&seen.problem);
        self.pods.set(pods, &self.filter);
        self.pairs.set(self.known_pairs.iter().map(pair).collect(), &self.filter);
    }

    /// What the agent has to be asked.
    pub(super) fn wanted(&self) -> Wanted {
        match &self.page {
            Some(Page::Yaml(uid, _)) => Wanted::Yaml(uid.clone()),
            _ if self.filter.text.trim().is_empty() => Wanted::Nothing,
            _ => Wanted::Identity(self.filter.text.clone()),
        }
    }

    /// Shows the pod that this text identifies, if the text is still the filter.
    pub(super) fn identify(&mut self, text: &str, uid: Option<String>) {
        if self.filter.text == text {
            self.filter.uid = uid;
            self.select();
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

    /// The list in view, if the view is a list.
    pub(super) fn shown(&mut self) -> Option<&mut List> {
        match self.view {
            View::Pods => Some(&mut self.pods),
            View::Mirrors => Some(&mut self.pairs),
            View::Sources => None,
        }
    }

    /// Handles a key. Returns whether the user leaves.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_control => return true,
            _ if self.is_typing => self.typed(key.code, with_control),
            KeyCode::Esc if self.page.is_none() && !self.filter.text.is_empty() => {
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
            KeyCode::Enter if self.view == View::Pods && self.pods.matching() > 0 => {
                self.open(Some(Page::Pod));
            }
            KeyCode::Char('y') if self.view == View::Pods => {
                if let Some(row) = self.pods.selected() {
                    self.open(Some(Page::Yaml(row.cells[UID].clone(), None)));
                }
            }
            KeyCode::Char(c @ '1'..='3') => self.look_at(VIEWS[c as usize - '1' as usize]),
            KeyCode::Tab | KeyCode::Right => self.look_at(VIEWS[(self.view as usize + 1) % VIEWS.len()]),
            KeyCode::BackTab | KeyCode::Left => self.look_at(VIEWS[(self.view as usize + 2) % VIEWS.len()]),
            _ if self.page.is_some() => {}
            KeyCode::Char('/') => self.is_typing = self.view != View::Sources,
            KeyCode::Char('s') => self.order(List::sort_by_next),
            KeyCode::Char('r') => self.order(List::reverse),
            _ => {}
        }
        false
    }

    /// Moves the selection of a list, or scrolls a text. `to` gets the place and the number of lines that fit.
    fn go(&mut self, to: fn(usize, usize) -> usize) {
        let room = self.room;
        if self.page.is_none()
            && let Some(list) = self.shown()
        {
            list.selected = to(list.selected, room).min(list.matching().saturating_sub(1));
        } else {
            self.scroll = to(self.scroll, room);
        }
    }

    fn open(&mut self, page: Option<Page>) {
        self.page = page;
        self.scroll = 0;
    }

    fn typed(&mut self, code: KeyCode, with_control: bool) {
        let before = self.filter.text.clone();
        match code {
            KeyCode::Enter | KeyCode::Tab => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.text.clear();
            }
            KeyCode::Char('u') if with_control => self.filter.text.clear(),
            KeyCode::Backspace => drop(self.filter.text.pop()),
            KeyCode::Char(c) if !with_control && self.filter.text.len() < LONGEST => self.filter.text.push(c),
            _ => return,
        }
        if self.filter.text != before {
            // The agent is asked again.
            self.filter.uid = None;
            self.select();
            (self.pods.selected, self.pairs.selected) = (0, 0);
        }
    }

    fn select(&mut self) {
        self.pods.select(&self.filter);
        self.pairs.select(&self.filter);
    }

    fn look_at(&mut self, view: View) {
        self.view = view;
        self.open(None);
    }

    /// Changes the sort order.
    fn order(&mut self, change: fn(&mut List)) {
        if let Some(list) = self.shown() {
            change(list);
            self.select();
        }
    }
}

/// The row of a pod. `None`: it is no pod of the node.
fn pod(cells: &Cells, by_uid: &HashMap<&str, &Pair>) -> Option<Row> {
    let [_, _, uid, _, kind, phase, ..] = cells;
    let pair = by_uid.get(uid.as_str());
    let mut row = CELLS.map(|at| cells.get(at).cloned().unwrap_or_default());
    match kind.as_str() {
        // The agent may show a static pod as its mirror. A mirror without a static pod is no pod of the node.
        "mirror" => {
            row[UID] = pair.and_then(|pair| pair.pod_uid.clone())?;
            "static".clone_into(&mut row[KIND]);
        }
        "pod" => row[KIND].clear(),
        _ => {}
    }
    // An older agent has no status.
    if row[STATUS].is_empty() {
        row[STATUS].clone_from(phase);
    }
    pair.map_or("", |pair| pair.state()).clone_into(&mut row[MIRROR]);
    let mirror = pair.and_then(|pair| pair.is_good()).map(|is| (MIRROR, is));
    let status = is_bad(&row[STATUS]).then_some((STATUS, false));
    Some(Row { cells: row.into(), verdicts: mirror.into_iter().chain(status).collect() })
}

/// Whether a status asks for attention. Those of a pod that starts, runs, has succeeded or ends do not.
pub(super) fn is_bad(status: &str) -> bool {
    let is_starting = status.starts_with("Init:") && status.contains('/');
    !is_starting && !status.is_empty() && !FINE.contains(&status)
}

fn pair(pair: &Pair) -> Row {
    let uid = |uid: &Option<String>| uid.clone().unwrap_or_default();
    let [namespace, name, state] = [&*pair.namespace, &*pair.name, pair.state()].map(str::to_owned);
    let cells = vec![namespace, name, state, pair.doing(), uid(&pair.pod_uid), uid(&pair.mirror_uid)];
    Row { cells, verdicts: pair.is_good().map(|is| (2, is)).into_iter().collect() }
}
