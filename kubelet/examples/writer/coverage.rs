//! Which times does the index cover? That follows from when its sources have reported.

use std::time::{Instant, SystemTime};

use pod_index::Moment;
use pod_index_kubelet::sources::{Merge, Merged, SourceStatus};
use tokio::sync::watch;

/// What the sources had reported by the last look. A status may be newer than the index, because what its source has just
/// reported may still be on its way. So the writer hears what was seen one look *earlier*, which is surely in the index.
pub(crate) struct Reported {
    /// Of each source of pods.
    statuses: Vec<watch::Receiver<SourceStatus>>,
    /// The last report of the source that has been silent for longest. `None`: one has not reported all its pods yet.
    until: Option<Instant>,
    /// No pod has come and gone unseen since then.
    since: Instant,
    relists: u64,
}

impl Reported {
    pub(crate) fn new(statuses: Vec<watch::Receiver<SourceStatus>>) -> Self {
        Self { statuses, until: None, since: Instant::now(), relists: 0 }
    }

    /// This moment, with what is covered. Then the next look.
    pub(crate) fn look(&mut self, all_seen: bool) -> Moment {
        let now = Moment::now();
        // By the clock as it is now, in case that it was set.
        let time =
            |instant: Instant| SystemTime::from(now.time) - now.instant.saturating_duration_since(instant);
        let moment = self.until.map_or(now, |until| now.covering(time(self.since), time(until)));

        let mut until = all_seen.then_some(now.instant);
        let mut relists = 0;
        for status in &self.statuses {
            let status = status.borrow();
            until = until.zip(status.reported_until).map(|(one, other)| one.min(other));
            relists += status.relists;
        }
        if until.is_none() || relists != self.relists {
            self.since = now.instant; // a gap has ended
        }
        self.until = until;
        self.relists = relists;
        moment
    }

    /// What follows from the last read of each source, and from the time that has passed.
    pub(crate) fn settle(&self, merge: &mut Merge) -> Vec<Merged> {
        let mut settled = vec![merge.expire(Instant::now())];
        for status in &self.statuses {
            let status = status.borrow();
            let hides_none = !status.problems.iter().any(|problem| problem.kind.is_grave());
            let is_complete = hides_none && status.last_complete_read == status.last_read;
            settled.extend(status.last_read.map(|began| merge.read(status.source, began, is_complete)));
        }
        settled
    }
}
