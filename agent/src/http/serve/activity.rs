//! What a connection is doing: waiting for a request, receiving its head, or serving it. From this follows when it is closed,
//! and which connection is closed first if there are too many.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Timeout of a request's head, from its first byte; of the first request, from the start of the connection.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a connection without requests. Longer than the intervals in which common clients ask.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(100);
/// How long clients are told that an idle connection stays open. Less than [`IDLE_TIMEOUT`]: a client that heeds it never
/// sends a request on a connection that is being closed.
pub(super) const KEEP_ALIVE: &str = "timeout=90";
/// Timeouts are checked this often.
pub(super) const CHECK: Duration = Duration::from_secs(5);

/// The state of a connection. The order is that in which connections are closed if there are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// The TLS handshake is not complete.
    Handshake = 0,
    Idle = 1,
    /// A part of a request's head was received.
    Head = 2,
    Serving = 3,
}

/// A connection's state and the time since when it has it, in one word: connections change it with each request.
#[derive(Debug)]
pub(crate) struct Activity {
    start: Instant,
    /// Milliseconds since `start`, times 4, plus the state.
    word: AtomicU64,
    /// Whether the client has yet to take what was written.
    is_writing: AtomicBool,
}

/// Why a connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    Idle,
    Head,
}

impl Activity {
    /// A new connection, before the handshake.
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), word: AtomicU64::new(0), is_writing: AtomicBool::new(false) }
    }

    pub(crate) fn set(&self, state: State) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX / 4);
        self.word.store(millis * 4 + state as u64, Ordering::Relaxed);
    }

    pub(super) fn set_writing(&self, is_writing: bool) {
        if self.is_writing.load(Ordering::Relaxed) != is_writing {
            self.is_writing.store(is_writing, Ordering::Relaxed);
        }
    }

    /// Bytes came from the client.
    pub(super) fn received(&self) {
        if self.state() == State::Idle {
            self.set(State::Head);
        }
    }

    /// A connection whose last response is still being taken counts as serving it.
    pub(super) fn state(&self) -> State {
        match self.word.load(Ordering::Relaxed) % 4 {
            0 => State::Handshake,
            1 if !self.is_writing.load(Ordering::Relaxed) => State::Idle,
            2 => State::Head,
            _ => State::Serving,
        }
    }

    pub(super) fn since(&self) -> Instant {
        self.start + Duration::from_millis(self.word.load(Ordering::Relaxed) / 4)
    }

    /// Whether it is in its state for too long.
    pub(super) fn expired(&self) -> Option<Expired> {
        let elapsed = self.since().elapsed();
        match self.state() {
            State::Idle if elapsed >= IDLE_TIMEOUT => Some(Expired::Idle),
            State::Head if elapsed >= HEAD_TIMEOUT => Some(Expired::Head),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_expires_in_the_head_and_when_it_is_idle_but_not_while_it_is_served() {
        let activity = Activity::new();
        for (state, time) in [(State::Head, HEAD_TIMEOUT), (State::Idle, IDLE_TIMEOUT)] {
            activity.set(state);
            advance(time.saturating_sub(Duration::from_millis(2))).await;
            assert_eq!(activity.expired(), None, "{state:?}");
            advance(Duration::from_millis(2)).await;
            assert!(activity.expired().is_some(), "{state:?}");
        }
        activity.set_writing(true);
        assert_eq!(
            (activity.state(), activity.expired()),
            (State::Serving, None),
            "its response is being taken"
        );
        activity.set_writing(false);
        activity.received();
        assert_eq!((activity.state(), activity.expired()), (State::Head, None), "the time begins anew");
        activity.set(State::Serving);
        activity.received();
        advance(Duration::from_secs(1000)).await;
        assert_eq!((activity.state(), activity.expired()), (State::Serving, None));
    }
}
