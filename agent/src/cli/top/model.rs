//! The state of the view: data, filter, sort order, position. Pure: keys and responses in, no I/O.

mod list;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use self::list::Column;
pub(super) use self::list::{Filter, List, Row};
use super::seen::{Answer, Cells, Counts, Identified};
use crate::api::seen::{Pair, Sources};

/// The window of the rates.
const WINDOW: Duration = Duration::from_secs(10);
/// Maximum length of the filter; longer than any name.
const LONGEST: usize = 512;

const POD_COLUMNS: [Column; 8] = [
    Column::always("NAMESPACE"),
    Column::always("NAME"),
    Column::until("KIND", 5),
    Column::until("MIRROR", 6),
    Column::until("SOURCE", 3),
    Column::until("PHASE", 4),
    Column::until("NODE", 1),
    Column::until("UID", 2),
];

/// The index of the kind in the columns of a pod.
const KIND: usize = 2;

const PAIR_COLUMNS: [Column; 6] = [
    Column::always("NAMESPACE"),
    Column::always("NAME"),
    Column::until("MIRROR", 4),
    Column::until("NEXT STEP", 3),
    Column::until("POD UID", 2),
    Column::until("MIRROR UID", 1),
];

/// The selected view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Pods,
    Mirrors,
    Sources,
}

/// The action that a key requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Stay,
    Leave,
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

#[derive(Debug)]
pub(super) struct Model {
    pub(super) server: String,
    pub(super) view: View,
    pub(super) filter: Filter,
    /// Whether the filter is being typed.
    pub(super) is_typing: bool,
    pub(super) pods: List,
    pub(super) pairs: List,
    pub(super) sources: Sources,
    pub(super) generation: f64,
    pub(super) watchers: f64,
    pub(super) static_pods: usize,
    /// The number of static pods, and how many have the expected mirror.
    pub(super) mirrored: (usize, usize),
    /// Why mirror pods are not managed, or what prevents the kubelet check.
    pub(super) mirror_problem: Option<String>,
    /// Time of the last response.
    pub(super) answered: Option<Moment>,
    /// Why the agent does not answer.
    pub(super) problem: Option<String>,
    /// The first line shown, and the number of lines that fit, as of the last frame.
    pub(super) scroll: usize,
    pub(super) page: usize,
    table: Vec<Cells>,
    known_pairs: Vec<Pair>,
    samples: VecDeque<(Instant, Counts)>,
}

impl Model {
    /// The initial state for the agent on `server`.
    pub(super) fn new(server: String) -> Self {
        Self {
            server,
            view: View::Pods,
            filter: Filter::default(),
            is_typing: false,
            pods: List::new(&POD_COLUMNS),
            pairs: List::new(&PAIR_COLUMNS),
            sources: Sources::default(),
            generation: 0.0,
            watchers: 0.0,
            static_pods: 0,
            mirrored: (0, 0),
            mirror_problem: None,
            answered: None,
            problem: None,
            scroll: 0,
            page: 1,
            table: Vec::new(),
            known_pairs: Vec::new(),
            samples: VecDeque::new(),
        }
    }

    /// Handles a response or a failure. After a failure, the last data stays.
    pub(super) fn hear(&mut self, answer: Result<Answer, String>, now: Moment) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(problem) => {
                self.problem = Some(problem);
                self.samples.clear();
                return;
            }
        };
        self.problem = None;
        self.answered = Some(now);
        self.sources = answer.sources;
        self.mirror_problem = answer.mirrors.problem;
        let pairs: Vec<_> = answer.mirrors.orphans.into_iter().chain(answer.mirrors.pods).collect();
        let is_new = answer.pods.is_some() || pairs != self.known_pairs;
        if let Some(pods) = answer.pods {
            self.table = pods;
        }
        if is_new {
            self.known_pairs = pairs;
            self.list();
        }
        if let Some(counts) = answer.counts {
            self.generation = counts.generation;
            self.watchers = counts.watchers;
            self.sample(counts, now.steady);
        }
    }

    /// Shows the pod that this text identifies, if the text is still the filter.
    pub(super) fn identify(&mut self, text: &str, found: &Identified) {
        if self.filter.text == text {
            self.filter.uid = found.uid().map(str::to_owned);
            self.select();
        }
    }

    /// Builds the rows.
    fn list(&mut self) {
        let by_uid: HashMap<&str, &Pair> =
            self.known_pairs.iter().flat_map(|pair| pair.uids().map(move |uid| (uid, pair))).collect();
        let pod = |cells: &Cells| {
            let Cells { namespace, name, uid, source, kind, phase, node } = cells;
            let pair = by_uid.get(uid.as_str());
            // The agent may show a static pod as its mirror. A mirror without a static pod is no pod of the node.
            let (uid, kind) = match kind.as_str() {
                "mirror" => (pair.and_then(|pair| pair.pod_uid.as_ref())?, "static"),
                "pod" => (uid, ""),
                other => (uid, other),
            };
            let mirror = pair.map_or("", |pair| pair.state());
            let is_good = pair.and_then(|pair| pair.is_good());
            Some(Row::new([namespace, name, kind, mirror, source, phase, node, uid], (3, is_good)))
        };
        let pair = |pair: &Pair| {
            let uid = |uid: &Option<String>| uid.clone().unwrap_or_default();
            let cells = [
                &pair.namespace,
                &pair.name,
                pair.state(),
                &pair.doing(),
                &uid(&pair.pod_uid),
                &uid(&pair.mirror_uid),
            ];
            Row::new(cells, (2, pair.is_good()))
        };
        let pods: Vec<_> = self.table.iter().filter_map(pod).collect();
        self.static_pods = pods.iter().filter(|row| row.cells[KIND] == "static").count();
        let pairs = self.known_pairs.iter().filter(|pair| pair.pod_uid.is_some());
        let good = pairs.clone().filter(|pair| pair.is_good() == Some(true)).count();
        self.mirrored = (good, pairs.count());
        self.pods.set(pods, &self.filter);
        self.pairs.set(self.known_pairs.iter().map(pair).collect(), &self.filter);
    }

    fn sample(&mut self, counts: Counts, now: Instant) {
        // Counters that fall belong to a restarted agent.
        if self.samples.back().is_some_and(|(_, last)| counts.publications < last.publications) {
            self.samples.clear();
        }
        self.samples.push_back((now, counts));
        let is_old = |time: &Instant| now.duration_since(*time) > WINDOW;
        while self.samples.len() > 2 && self.samples.get(1).is_some_and(|(time, _)| is_old(time)) {
            self.samples.pop_front();
        }
    }

    /// Publications and pod changes per second, once there are enough samples.
    pub(super) fn rates(&self) -> Option<(f64, f64)> {
        let ((from, first), (to, last)) = (self.samples.front()?, self.samples.back()?);
        let seconds = to.duration_since(*from).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        Some(((last.publications - first.publications) / seconds, (last.changes - first.changes) / seconds))
    }

    /// The list in view, if the view is a list.
    pub(super) fn shown(&mut self) -> Option<&mut List> {
        match self.view {
            View::Pods => Some(&mut self.pods),
            View::Mirrors => Some(&mut self.pairs),
            View::Sources => None,
        }
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Wish {
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_control => return Wish::Leave,
            _ if self.is_typing => self.typed(key.code, with_control),
            KeyCode::Char('q') | KeyCode::Esc => return Wish::Leave,
            KeyCode::Char('/') => self.is_typing = self.view != View::Sources,
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll = self.scroll.saturating_add(self.page),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(self.page),
            KeyCode::Home | KeyCode::Char('g') => self.scroll = 0,
            // To the end. Drawing limits it to the last line.
            KeyCode::End | KeyCode::Char('G') => self.scroll = usize::MAX,
            KeyCode::Char('1') => self.look_at(View::Pods),
            KeyCode::Char('2') => self.look_at(View::Mirrors),
            KeyCode::Char('3') => self.look_at(View::Sources),
            KeyCode::Tab | KeyCode::Right => self.look_at(match self.view {
                View::Pods => View::Mirrors,
                View::Mirrors => View::Sources,
                View::Sources => View::Pods,
            }),
            KeyCode::BackTab | KeyCode::Left => self.look_at(match self.view {
                View::Pods => View::Sources,
                View::Mirrors => View::Pods,
                View::Sources => View::Mirrors,
            }),
            KeyCode::Char('s') => self.order(List::sort_by_next),
            KeyCode::Char('r') => self.order(List::reverse),
            _ => {}
        }
        Wish::Stay
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
        self.scroll = 0;
        if self.filter.text != before {
            // The agent is asked again.
            self.filter.uid = None;
        }
        self.select();
    }

    fn select(&mut self) {
        self.pods.select(&self.filter);
        self.pairs.select(&self.filter);
    }

    fn look_at(&mut self, view: View) {
        self.view = view;
        self.scroll = 0;
    }

    fn order(&mut self, change: fn(&mut List, &Filter)) {
        self.scroll = 0;
        match self.view {
            View::Pods => change(&mut self.pods, &self.filter),
            View::Mirrors => change(&mut self.pairs, &self.filter),
            View::Sources => {}
        }
    }
}
