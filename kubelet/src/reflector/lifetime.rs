//! How long a watch is asked to last, and how long its server may say nothing.
//!
//! While nothing of a kind changes, a server sends bookmarks only if its etcd sends it progress notices. kubeadm's etcd sends one
//! every 5 s, etcd by itself one every 10 minutes. Without them a healthy watch is as silent as one whose events a proxy
//! swallows. What tells them apart is the end: the server ends a watch after the time that it was asked to last, and the proxy
//! swallows that, too. So from such a server short watches are requested, which end before their silence counts.

use std::time::Duration;

use super::Times;
use crate::backoff::{jitter, random};

/// After this many watches in a row in which the server has said something, long ones are requested again. With 10 minutes
/// between the progress notices, about one short watch of six has a bookmark.
const STEADY: u32 = 10;

/// A server counts seconds, and takes 0 for no limit.
const SHORTEST: Duration = Duration::from_secs(1);

/// The times of one watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lifetime {
    /// The server is asked to end the watch after this long.
    pub(super) asked: Duration,
    /// Time limit for the beginning of the answer.
    pub(super) patience: Duration,
    /// Without a word for this long, the watch is given up.
    pub(super) silence: Duration,
}

/// Chooses the lifetimes of the watches of one kind, by what the server has said in the earlier ones.
pub(super) struct Lifetimes {
    /// In this many of the last watches the server has said something; at most [`STEADY`].
    talkative: u32,
}

impl Lifetimes {
    /// Before the first watch, the server is believed to send bookmarks.
    pub(super) fn new() -> Self {
        Self { talkative: STEADY }
    }

    /// The lifetime of the next watch: random, so that watches do not all end at once.
    pub(super) fn next(&self, times: &Times, is_http1: bool) -> Lifetime {
        let Times { mut patience, mut silence, http1_watch, .. } = *times;
        let mut asked = Duration::from_secs(200) + Duration::from_secs(90).mul_f64(random());
        if self.talkative < STEADY {
            let short = silence.mul_f64(0.6) + silence.mul_f64(0.2).mul_f64(random());
            asked = asked.min(short).max(SHORTEST);
            silence = silence.max(asked + silence / 5);
        }
        if is_http1 {
            // Without pings, a proxy that swallows events is noticed only because the watch does not end.
            asked = asked.min(http1_watch.mul_f64(jitter()));
            silence = silence.min(asked + http1_watch / 3);
            // The last watch may have ended just before the proxy fell silent.
            patience = patience.min(http1_watch + http1_watch / 3);
        }
        Lifetime { asked, patience, silence }
    }

    /// Records that the server has ended a watch. `has_spoken`: it has sent something before.
    pub(super) fn ended(&mut self, has_spoken: bool) {
        if has_spoken {
            self.talkative = (self.talkative + 1).min(STEADY);
        } else if self.talkative < STEADY {
            self.talkative = 0;
        }
    }

    /// Records that a watch was given up because the server had said nothing.
    pub(super) fn silent(&mut self) {
        self.talkative = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Whether the server is asked to end a watch before its silence counts.
    fn is_short(lifetimes: &Lifetimes) -> bool {
        let times = Times::default();
        let Lifetime { asked, patience, silence } = lifetimes.next(&times, false);
        assert_eq!((patience, silence), (times.patience, times.silence));
        if asked < silence {
            assert!(asked >= 90 * SECOND && asked <= 120 * SECOND, "{asked:?}");
        } else {
            assert!(asked >= 200 * SECOND && asked <= 290 * SECOND, "{asked:?}");
        }
        asked < silence
    }

    #[test]
    fn a_server_that_was_silent_is_asked_for_short_watches_until_it_has_talked_in_ten_of_them() {
        let mut lifetimes = Lifetimes::new();
        assert!(!is_short(&lifetimes));
        // It has closed all watches, as it does when it is stopped.
        lifetimes.ended(false);
        assert!(!is_short(&lifetimes));
        lifetimes.silent();
        // A progress notice every ten minutes.
        for watch in 0..40 {
            assert!(is_short(&lifetimes), "{watch}");
            lifetimes.ended(watch % 5 == 0);
        }
        for watch in 0..STEADY {
            assert!(is_short(&lifetimes), "{watch}");
            lifetimes.ended(true);
        }
        assert!(!is_short(&lifetimes));
    }

    #[test]
    fn a_short_watch_always_ends_before_its_silence_counts() {
        let mut lifetimes = Lifetimes::new();
        lifetimes.silent();
        for millis in [1, 20, 999, 1_000, 2_500, 150_000] {
            let times = Times { silence: Duration::from_millis(millis), ..Times::default() };
            for is_http1 in [false, true] {
                let Lifetime { asked, silence, .. } = lifetimes.next(&times, is_http1);
                assert!(asked >= SECOND && asked < silence, "{asked:?} {silence:?}");
            }
        }
    }

    #[test]
    fn over_http1_every_watch_is_short() {
        let times = Times::default();
        let mut lifetimes = Lifetimes::new();
        for _ in 0..2 {
            let Lifetime { asked, patience, silence } = lifetimes.next(&times, true);
            assert!(asked >= 20 * SECOND && asked <= 30 * SECOND, "{asked:?}");
            assert_eq!((patience, silence), (40 * SECOND, asked + 10 * SECOND));
            lifetimes.silent();
        }
    }
}
