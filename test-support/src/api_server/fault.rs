//! Faults that tests can request.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::request::Verb;

/// How a request fails.
#[derive(Clone, Debug)]
pub enum Fault {
    /// No fault: lets requests pass before the next fault.
    None,
    /// A late answer.
    Delay(Duration),
    /// An answer with this HTTP status, as a `Status`.
    Status(u16),
    /// 429 as priority and fairness sends it: text, with `Retry-After` in seconds.
    TooManyRequests(u64),
    /// 504: the server has not reached the version.
    TooLargeVersion,
    /// The connection closes without an answer. The request has no effect.
    Drop,
    /// The request is executed; the connection closes without an answer.
    DropAfter,
    /// A watch: after this many complete events, half of the next one, and the connection closes.
    CutInEvent(usize),
    /// A watch: ends normally after this many events.
    End(usize),
    /// A watch: a pause before each event after the first, as of a server that a thousand clients ask at once.
    Slow(Duration),
    /// A watch: its first event is an error with this code.
    ErrorEvent(u16),
    /// 200, with a body that is not JSON.
    Garbage,
}

/// Faults that wait for matching requests.
#[derive(Default)]
pub(super) struct Faults {
    once: HashMap<Verb, VecDeque<Fault>>,
    always: HashMap<Verb, Fault>,
}

impl Faults {
    pub(super) fn next(&mut self, verb: Verb, fault: Fault) {
        self.once.entry(verb).or_default().push_back(fault);
    }

    pub(super) fn always(&mut self, verb: Verb, fault: Fault) {
        self.always.insert(verb, fault);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The fault for this request.
    pub(super) fn take(&mut self, verb: Verb) -> Fault {
        let once = self.once.get_mut(&verb).and_then(VecDeque::pop_front);
        once.or_else(|| self.always.get(&verb).cloned()).unwrap_or(Fault::None)
    }
}
