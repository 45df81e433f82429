//! Where the newest version of one object is put by the one who follows it, and read by all.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::kind::Object;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// What is known of an object.
pub(super) enum Known<K> {
    /// Nothing: it is not followed, or nothing was heard yet.
    Nothing,
    /// There is none.
    Absent,
    Present(Object<K>),
}

impl<K> Known<K> {
    /// The object, if there is one.
    pub(super) fn object(self) -> Option<Object<K>> {
        match self {
            Self::Nothing | Self::Absent => None,
            Self::Present(object) => Some(object),
        }
    }
}

// By hand, as a derive would ask for `K: Clone`.
impl<K> Clone for Known<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::Absent => Self::Absent,
            Self::Present(object) => Self::Present(object.clone()),
        }
    }
}

/// The newest version of one object. Reading it is one load.
pub(super) struct Slot<K> {
    known: ArcSwap<Known<K>>,
    writing: Mutex<Writing>,
    /// For those who wait for a first word.
    heard: watch::Sender<Heard>,
}

/// What those who wait for a first word want to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    Nothing,
    /// There is something to read.
    Something,
    /// Nothing will ever be heard here: nobody names the object any more.
    Released,
}

#[derive(Default)]
struct Writing {
    /// Counts those who were told to follow the object. What an earlier one still has to say is not heard: it may have
    /// been told to stop, and what it says could stand for ever.
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

    /// Waits for a first word, or for the end of all waiting.
    pub(super) async fn heard(&self) -> Heard {
        let mut heard = self.heard.subscribe();
        let heard = heard.wait_for(|heard| *heard != Heard::Nothing).await;
        // Fails only when the sender is gone, and that is in `self`.
        heard.map_or(Heard::Released, |heard| *heard)
    }

    /// Why nothing newer is known.
    pub(super) fn problem(&self) -> Option<String> {
        self.writing().problem.clone()
    }

    /// The turn of a new follower, which ends that of the one before.
    pub(super) fn next_turn(&self) -> u64 {
        let mut writing = self.writing();
        writing.turn += 1;
        writing.turn
    }

    /// Ends the follower's turn; what is known is forgotten, as nobody keeps it true. That goes for what was wrong, too.
    pub(super) fn forget(&self) {
        self.empty(Heard::Nothing);
    }

    /// The same for good. A secret does not stay in memory because somebody still waits here.
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

    /// Says what is true now. `false`: the turn is over, and nothing was said.
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

    /// Says that nothing is wrong any more; what is known is as it was.
    pub(super) fn recovered(&self, turn: u64) {
        let mut writing = self.writing();
        if writing.turn == turn {
            writing.problem = None;
        }
    }

    /// Says what is wrong, and whether that is news.
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
    fn a_follower_whose_turn_is_over_is_not_heard() {
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
    fn what_was_wrong_is_forgotten_with_what_was_known() {
        let slot = Slot::<u8>::new();
        assert!(slot.fail(slot.next_turn(), "one"));
        slot.forget();
        assert_eq!(slot.problem(), None);
        assert!(slot.fail(slot.next_turn(), "one"), "it is news again");
    }

    #[tokio::test]
    async fn a_released_slot_holds_nothing_and_keeps_nobody_waiting() {
        let slot = Slot::new();
        let secret = Object::new(1);
        let turn = slot.next_turn();
        assert!(slot.write(turn, Some(secret.clone())));
        assert_eq!(slot.heard().await, Heard::Something);
        slot.release();
        assert_eq!(slot.heard().await, Heard::Released);
        assert_eq!(Arc::strong_count(&secret.into_arc()), 1, "nobody else has it");
        assert!(!slot.write(turn, Some(Object::new(2))));
        assert!(matches!(slot.read(), Known::Nothing));
    }
}
