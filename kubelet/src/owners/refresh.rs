//! When each owner is requested, for the first time and again.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

use super::id::OwnerId;
use super::interest::Interest;
use super::kind::OwnerKind;
use super::known::Interests;
use super::wanted::Wanted;
use crate::backoff::jitter;

/// The age at which an owner is requested again. Shortened at random by up to a third.
pub(super) const REFRESH: Duration = Duration::from_secs(3600);
/// The age at which an owner is requested again if somebody asks for its kind. Shortened likewise.
const STALE: Duration = Duration::from_secs(600);
/// After the start, the owners are requested at random times within this time, unless somebody asks for them.
pub(super) const SPREAD: Duration = Duration::from_secs(180);

/// Which owners are requested without anybody asking for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Needed {
    /// Those that name a workload: `ReplicaSets` and Jobs.
    #[default]
    ForNames,
    /// Every owner, because its UID, labels or annotations are needed. See
    /// [`Extract::needs_owners`](crate::records::Extract::needs_owners).
    Every,
}

/// What came of the requests for an owner in this run.
struct Tried {
    /// Whether the API server has answered, if only that the owner does not exist.
    is_answered: bool,
    /// Failed requests since the last answer. Owners with fewer are requested first.
    failures: usize,
    next: Next,
}

/// The next request for an owner.
enum Next {
    /// The last one was answered.
    Refresh {
        at: Instant,
        /// When it is requested if somebody asks for its kind.
        if_asked_at: Instant,
    },
    /// The last one failed, or was left out because others had failed.
    Retry { at: Instant, why: Problem },
}

/// Why an owner could not be read.
#[derive(Clone, Debug)]
pub(super) enum Problem {
    /// The right is missing: the API server's words.
    Denied(String),
    Failed(String),
}

impl Problem {
    pub(super) fn why(&self) -> &str {
        match self {
            Self::Denied(why) | Self::Failed(why) => why,
        }
    }

    pub(super) fn is_denied(&self) -> bool {
        matches!(self, Self::Denied(_))
    }
}

/// The kinds without the right, and when each is tried again. Rights are granted for kinds.
pub(super) struct Denied(HashMap<OwnerKind, Instant>);

/// When each owner is requested.
pub(super) struct Schedule {
    needed: Needed,
    began: Instant,
    /// Spreads the first requests.
    hasher: RandomState,
    tried: HashMap<OwnerId, Tried>,
}

impl Schedule {
    pub(super) fn new(needed: Needed) -> Self {
        Self { needed, began: Instant::now(), hasher: RandomState::new(), tried: HashMap::new() }
    }

    /// When the schedule began.
    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// When an owner is to be requested; in the past: at once.
    pub(super) fn due_at(&self, id: &OwnerId, interests: &Interests, denied: &Denied) -> Instant {
        let due_at = match self.tried.get(id).map(|tried| &tried.next) {
            None => self.first_due_at(id, interests),
            Some(Next::Retry { at, .. }) => *at,
            Some(Next::Refresh { at, if_asked_at }) => {
                let asked_at = interests.for_kind(id.kind).filter_map(Interest::asked_at).max();
                if asked_at >= Some(*if_asked_at) { *if_asked_at } else { *at }
            }
        };
        denied.0.get(&id.kind).map_or(due_at, |until| due_at.max(*until))
    }

    /// When an owner is requested for the first time.
    fn first_due_at(&self, id: &OwnerId, interests: &Interests) -> Instant {
        let is_needed = id.kind.names_the_workload() || self.needed == Needed::Every;
        if interests.for_kind(id.kind).any(Interest::is_urgent) {
            self.began
        } else if is_needed {
            self.began + SPREAD.mul_f64(self.share(id))
        } else {
            Instant::now() + REFRESH
        }
    }

    /// A share from 0 to 1 of a time, always the same for an owner.
    fn share(&self, id: &OwnerId) -> f64 {
        let [low, high, ..] = self.hasher.hash_one(id).to_le_bytes();
        f64::from(u16::from_le_bytes([low, high])) / f64::from(u16::MAX)
    }

    /// The kinds that wait because the right is missing.
    pub(super) fn denied(&self, wanted: &Wanted) -> Denied {
        let now = Instant::now();
        let until = |id: &OwnerId| match self.tried.get(id)?.next {
            Next::Retry { at, why: Problem::Denied(_) } if at > now => Some((id.kind, at)),
            _ => None,
        };
        Denied(wanted.owners.iter().filter_map(until).collect())
    }

    /// The API server has answered.
    pub(super) fn answered(&mut self, id: OwnerId) {
        let now = Instant::now();
        let jitter = jitter();
        let next =
            Next::Refresh { at: now + REFRESH.mul_f64(jitter), if_asked_at: now + STALE.mul_f64(jitter) };
        self.tried.insert(id, Tried { is_answered: true, failures: 0, next });
    }

    /// A request for this owner has failed.
    pub(super) fn failed(&mut self, id: OwnerId, why: &Problem, retry_at: Instant) {
        self.put_off(id, why, retry_at).failures += 1;
    }

    /// The owner is not requested before this time, because the request for another one has failed.
    pub(super) fn waits(&mut self, id: OwnerId, why: &Problem, retry_at: Instant) {
        self.put_off(id, why, retry_at);
    }

    fn put_off(&mut self, id: OwnerId, why: &Problem, at: Instant) -> &mut Tried {
        let next = || Next::Retry { at, why: why.clone() };
        let tried =
            self.tried.entry(id).or_insert_with(|| Tried { is_answered: false, failures: 0, next: next() });
        tried.next = next();
        tried
    }

    /// Forgets the owners that no pod needs.
    pub(super) fn retain(&mut self, wanted: &Wanted) {
        self.tried.retain(|id, _| wanted.owners.contains(id));
    }

    /// The latest time at which a failed request is repeated.
    pub(super) fn last_retry(&self) -> Option<Instant> {
        let retry = |tried: &Tried| match tried.next {
            Next::Retry { at, .. } => Some(at),
            Next::Refresh { .. } => None,
        };
        self.tried.values().filter_map(retry).max()
    }

    /// Whether the API server has answered in this run, if only that the owner does not exist.
    pub(super) fn is_answered(&self, id: &OwnerId) -> bool {
        self.tried.get(id).is_some_and(|tried| tried.is_answered)
    }

    /// Failed requests since the last answer.
    pub(super) fn failures(&self, id: &OwnerId) -> usize {
        self.tried.get(id).map_or(0, |tried| tried.failures)
    }

    /// Why the last request failed, if it did.
    pub(super) fn problem(&self, id: &OwnerId) -> Option<&Problem> {
        match &self.tried.get(id)?.next {
            Next::Retry { why, .. } => Some(why),
            Next::Refresh { .. } => None,
        }
    }

    /// One of all problems.
    pub(super) fn any_problem(&self) -> Option<&Problem> {
        self.tried.keys().find_map(|id| self.problem(id))
    }
}
