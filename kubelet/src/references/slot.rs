//! Holds the newest version of one object: written by its follower, read by all.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::kind::Object;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// What is known of an object.
pub(super) enum Known<K> {
    /// It is not followed, or nothing has been received yet.
    Nothing,
    /// The object does not exist.
    Absent,
    Present(Object<K>),
}

impl<K> Known<K> {
    /// The object, if it exists.
    pub(super) fn object(self) -> Option<Object<K>> {
        match self {
            Self::Nothing | Self::Absent => None,
            Self::Present(object) => Some(object),
        }
    }
}

// By hand: a derive would require `K: Clone`.
impl<K> Clone for Known<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::Absent => Self::Absent,
            Self::Present(object) => Self::Present(object.clone()),
        }
    }
}

/// The newest version of one object. A read is one load.
pub(super) struct Slot<K> {
    known: ArcSwap<Known<K>>,
    writing: Mutex<Writing>,
    /// Wakes tasks that wait for the first answer.
    heard: watch::Sender<Heard>,
}

/// The state that waiting tasks need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    Nothing,
    /// There is something to read.
    Something,
    /// Nothing will ever be received: no pod names the object any more.
    Released,
}

#[derive(Default)]
struct Writing {
    /// Number of followers started so far. Writes by earlier followers are rejected: they may be outdated and
    /// would never be corrected.
    turn: u64,
    problem: Option<String>,
}

impl<K> Slot<K> {
    pub(super) fn new() -> Self {
        Self {
            known: ArcSwap::new(Arc::new(Known::Nothing)),
            writing: Mutex::default(),
            heard: watch::Sender::new(Heard::Nothing),
        }
    }

    pub(super) fn read(&self) -> Known<K> {
        Known::clone(&self.known.load())
    }

    pub(super) fn is_synced(&self) -> bool {
        !matches!(**self.known.load(), Known::Nothing)
    }

    /// Waits for the first answer, or for the release.
    pub(super) async fn heard(&self) -> Heard {
        let mut heard = self.heard.subscribe();
        let heard = heard.wait_for(|heard| *heard != Heard::Nothing).await;
        // Fails only if the sender is gone, and `self` holds it.
        heard.map_or(Heard::Released, |heard| *heard)
    }

    /// Why nothing newer is known.
    pub(super) fn problem(&self) -> Option<String> {
        self.writing().problem.clone()
    }

    /// Starts the turn of a new follower and ends that of the previous one.
    pub(super) fn next_turn(&self) -> u64 {
        let mut writing = self.writing();
        writing.turn += 1;
        writing.turn
    }

    /// Ends the follower's turn and clears the object and the problem: nothing keeps them current.
    pub(super) fn forget(&self) {
        self.empty(Heard::Nothing);
    }

    /// Like `forget`, but permanently. A secret must not stay in memory because a task still waits here.
    pub(super) fn release(&self) {
        self.empty(Heard::Released);
    }

    fn empty(&self, heard: Heard) {
        let mut writing = self.writing();
        writing.turn += 1;
        writing.problem = None;
        self.known.swap(Arc::new(Known::Nothing));
        self.heard.send_replace(heard);
    }

    /// Writes the current state. Returns `false`, without effect, if the turn is over.
    pub(super) fn write(&self, turn: u64, object: Option<Object<K>>) -> bool {
        let mut writing = self.writing();
        if writing.turn != turn {
            return false;
        }
        writing.problem = None;
        let known = object.map_or(Known::Absent, Known::Present);
        self.known.swap(Arc::new(known));
        self.heard.send_replace(Heard::Something);
        true
    }

    /// Clears the problem; the object stays.
    pub(super) fn recovered(&self, turn: u64) {
        let mut writing = self.writing();
        if writing.turn == turn {
            writing.problem = None;
        }
    }

    /// Records a problem. Returns whether it is new.
    pub(super) fn fail(&self, turn: u64, problem: &str) -> bool {
        let mut writing = self.writing();
        if writing.turn != turn || writing.problem.as_deref() == Some(problem) {
            return false;
        }
        writing.problem = Some(problem.to_owned());
        true
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_a_follower_whose_turn_is_over_are_rejected() {
        let slot = Slot::new();
        let first = slot.next_turn();
        assert!(slot.write(first, Some(Object::new(1))));
        slot.forget();
        assert!(!slot.write(first, Some(Object::new(2))), "it had not noticed yet that it was to stop");
        assert!(!slot.is_synced());
        let second = slot.next_turn();
        assert!(slot.write(second, None) && !slot.write(first, Some(Object::new(3))));
        assert!(matches!(slot.read(), Known::Absent));
    }

    #[test]
    fn forgetting_clears_the_problem_and_the_object() {
        let slot = Slot::<u8>::new();
        assert!(slot.fail(slot.next_turn(), "one"));
        slot.forget();
        assert_eq!(slot.problem(), None);
        assert!(slot.fail(slot.next_turn(), "one"), "it is news again");
    }

    #[tokio::test]
    async fn a_released_slot_is_empty_and_wakes_its_waiters() {
        let slot = Slot::new();
        let secret = Object::new(1);
        let turn = slot.next_turn();
        assert!(slot.write(turn, Some(secret.clone())));
        assert_eq!(slot.heard().await, Heard::Something);
        slot.release();
        assert_eq!(slot.heard().await, Heard::Released);
        assert_eq!(Arc::strong_count(&secret.into_arc()), 1, "no other reference is left");
        assert!(!slot.write(turn, Some(Object::new(2))));
        assert!(matches!(slot.read(), Known::Nothing));
    }
}
