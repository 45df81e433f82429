//! What can go wrong, on order.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::request::Verb;

/// How a request is made to fail.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing goes wrong: to let some requests pass before the next fault.
    None,
    /// It is answered, but late.
    Delay(Duration),
    /// It is answered by this HTTP status. 410 has the reason `Expired`, as a real server says it.
    Status(u16),
    /// It is answered by 429, with `Retry-After` in seconds.
    TooManyRequests(u64),
    /// The connection closes without an answer. What was asked for is not done.
    Drop,
    /// What was asked for is done; the connection closes without an answer.
    DropAfter,
    /// A watch: after so many whole events, half of the next one, and the connection closes.
    CutInEvent(usize),
    /// A watch: after so many events it ends in good order.
    End(usize),
    /// A watch: its first event is an error of this code.
    ErrorEvent(u16),
    /// It is answered by 200 and something that is not JSON.
    Garbage,
}

/// The faults that wait for their requests.
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

    /// What this request meets.
    pub(super) fn take(&mut self, verb: Verb) -> Fault {
        let once = self.once.get_mut(&verb).and_then(VecDeque::pop_front);
        once.or_else(|| self.always.get(&verb).cloned()).unwrap_or(Fault::None)
    }
}
