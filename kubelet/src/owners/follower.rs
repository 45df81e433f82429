//! The loop: asks which owners pods need, requests those that are due, and tells what came of it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kube::Client;
use pod_index::Reader;
use tokio::time::{Instant, sleep, sleep_until};

use super::Owner;
use super::id::OwnerId;
use super::interest::Interest;
use super::kind::OwnerKind;
use super::known::Owners;
use super::rate::Rate;
use super::refresh::{Needed, Problem, REFRESH, Schedule};
use super::request::{Answer, request};
use super::update::{OwnerUpdate, OwnersState};
use super::wanted::Wanted;
use crate::HasPod;

/// Changes of pods within this time cause one pass.
const GATHER: Duration = Duration::from_millis(200);
/// If the pods are not complete after this time, the states of all kinds say so.
const START: Duration = Duration::from_secs(5);

/// How owners are followed.
pub struct Options {
    /// Which owners are requested without anybody asking for them.
    pub needed: Needed,
    /// Whether the index has all pods. Until it does, nothing is forgotten, and no kind counts as read. By default always
    /// true: then start the [`Follower`] after the first list of pods was written.
    pub are_pods_complete: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Default for Options {
    fn default() -> Self {
        Self { needed: Needed::default(), are_pods_complete: Box::new(|| true) }
    }
}

/// Follows the owners of the pods in an index. See the [module](super) for when it requests what.
pub struct Follower<P> {
    client: Client,
    reader: Reader<P>,
    owners: Owners,
    are_pods_complete: Box<dyn Fn() -> bool + Send + Sync>,
    tell: Box<dyn FnMut(OwnerUpdate) + Send>,
    /// The owners that were told of.
    told: HashSet<OwnerId>,
    schedule: Schedule,
    rate: Rate,
}

impl<P: HasPod> Follower<P> {
    /// Follows the owners of the pods that `reader` reads. What becomes known is kept in `owners`, and told. The client needs
    /// the right to `get` each kind of [`OwnerKind::ALL`]; a kind without it is tried once a minute, and holds up no other.
    #[must_use]
    pub fn new(
        client: Client,
        reader: Reader<P>,
        owners: Owners,
        options: Options,
        tell: impl FnMut(OwnerUpdate) + Send + 'static,
    ) -> Self {
        Self {
            client,
            reader,
            owners,
            are_pods_complete: options.are_pods_complete,
            tell: Box::new(tell),
            told: HashSet::new(),
            schedule: Schedule::new(options.needed),
            rate: Rate::new(),
        }
    }

    /// An owner that an earlier run has read. It counts as known, and is told, until it is read again, or until no pod needs it.
    pub fn restore(&mut self, kind: OwnerKind, owner: Arc<Owner>) {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        let metadata = &owner.metadata;
        let id = OwnerId {
            kind,
            namespace: text(&metadata.namespace),
            name: text(&metadata.name),
            uid: text(&metadata.uid),
        };
        self.keep(id, owner);
    }

    /// Follows the owners until the index has no writer any more. Cancel it by dropping the future.
    pub async fn run(mut self) {
        let mut was_reported = false;
        let interests = Arc::clone(self.owners.interests());
        loop {
            let were_complete = (self.are_pods_complete)();
            let wanted = self.pass().await;
            let problem = self.schedule.any_problem();
            if let Some(problem) = problem.filter(|_| !was_reported) {
                let why = problem.why();
                tracing::warn!("owners of pods cannot be read; their names are derived: {why}");
            }
            was_reported = problem.is_some();
            self.tell_states(&wanted, were_complete);
            let denied = self.schedule.denied(&wanted);
            let due = wanted.owners.iter().map(|id| self.schedule.due_at(id, &interests, &denied));
            // The pods may become complete without a change of the index.
            let longest = Instant::now() + if were_complete { REFRESH } else { GATHER };
            let next = due.min().map_or(longest, |due| due.min(longest));
            // Only for the wait: it holds the snapshot that it saw last.
            let mut changes = self.reader.changes();
            let newer = async {
                while changes.next().await?.after().pods_generation() == wanted.generation {}
                Some(())
            };
            let mut woken: FuturesUnordered<_> = interests.all().map(Interest::woken).collect();
            tokio::select! {
                change = newer => {
                    if change.is_none() {
                        return;
                    }
                }
                // Also if it was woken before.
                Some(()) = woken.next() => continue,
                () = sleep_until(next) => continue,
            }
            drop(changes);
            sleep(GATHER).await;
        }
    }

    /// Requests what is missing or old, and forgets what no pod needs. Returns what pods need.
    async fn pass(&mut self) -> Wanted {
        self.rate.begin_pass();
        loop {
            // Asked before the pods are taken: those taken earlier may be incomplete.
            let were_complete = (self.are_pods_complete)();
            // Taken again after each request: a new pod waits for one request at most.
            let wanted = Wanted::of(&self.reader, &self.owners);
            let Some(id) = self.next_due(&wanted) else {
                // Asked again: the pods of a source may go while another one joins.
                if were_complete && (self.are_pods_complete)() {
                    self.forget(&wanted);
                }
                return wanted;
            };
            match request(&self.client, &id).await {
                Answer::Found(owner) => {
                    self.keep(id.clone(), Arc::from(owner));
                    self.schedule.answered(id);
                }
                Answer::NotFound => {
                    self.lose(&id);
                    self.schedule.answered(id);
                }
                Answer::Denied(why) => self.failed(id, &Problem::Denied(why), &wanted),
                Answer::Failed(why) => self.failed(id, &Problem::Failed(why), &wanted),
            }
            self.rate.pace().await;
        }
    }

    /// The owners that are due.
    fn due<'a>(&self, wanted: &'a Wanted) -> impl Iterator<Item = &'a OwnerId> {
        let now = Instant::now();
        let denied = self.schedule.denied(wanted);
        let interests = self.owners.interests();
        wanted.owners.iter().filter(move |id| self.schedule.due_at(id, interests, &denied) <= now)
    }

    /// The owner to request next: of those that are due, the one that failed least often.
    fn next_due(&self, wanted: &Wanted) -> Option<OwnerId> {
        self.due(wanted).min_by_key(|id| self.schedule.failures(id)).cloned()
    }

    /// A request has failed: this owner waits, and, if the API server seems to be away, all that are due.
    fn failed(&mut self, id: OwnerId, why: &Problem, wanted: &Wanted) {
        if !why.is_denied() {
            self.rate.failed();
        }
        let retry_at = self.rate.retry_at(self.schedule.last_retry());
        if !why.is_denied() && self.rate.is_server_away() {
            let others: Vec<_> = self.due(wanted).filter(|other| **other != id).cloned().collect();
            for other in others {
                self.schedule.waits(other, why, retry_at);
            }
        }
        self.schedule.failed(id, why, retry_at);
    }

    fn keep(&mut self, id: OwnerId, owner: Arc<Owner>) {
        self.owners.keep(&id, Arc::clone(&owner));
        self.told.insert(id.clone());
        (self.tell)(OwnerUpdate::Read { id, owner });
    }

    /// The owner does not exist, or no pod needs it.
    fn lose(&mut self, id: &OwnerId) {
        if let Some(id) = self.told.take(id) {
            self.owners.forget(&id);
            (self.tell)(OwnerUpdate::Gone { id });
        }
    }

    /// Forgets what no pod needs. What was restored stays until all that may name it was read.
    fn forget(&mut self, wanted: &Wanted) {
        for kind in OwnerKind::ALL {
            let is_all_known =
                kind.owns().is_none_or(|below| wanted.of_kind(below).all(|id| self.schedule.is_answered(id)));
            let is_unneeded = |id: &&OwnerId| {
                id.kind == kind
                    && !wanted.owners.contains(*id)
                    && (is_all_known || self.schedule.is_answered(id))
            };
            let unneeded: Vec<_> = self.told.iter().filter(is_unneeded).cloned().collect();
            for id in unneeded {
                self.lose(&id);
            }
        }
        self.schedule.retain(wanted);
    }

    /// Says which kinds are read. Without all objects of a kind, those that they name are unknown as well.
    fn tell_states(&mut self, wanted: &Wanted, are_pods_complete: bool) {
        for kind in OwnerKind::ALL {
            let state = if are_pods_complete {
                Some(self.state(kind, wanted))
            } else {
                // Requests need not wait for it.
                let is_late = self.schedule.began().elapsed() >= START;
                is_late.then(|| OwnersState::Failed("the pods have not been read yet".to_owned()))
            };
            if let Some(state) = state {
                (self.tell)(OwnerUpdate::State { kind, state });
            }
        }
    }

    fn state(&self, kind: OwnerKind, wanted: &Wanted) -> OwnersState {
        let problems = || wanted.for_kind(kind).filter_map(|id| self.schedule.problem(id));
        if let Some(denied) = problems().find(|problem| problem.is_denied()) {
            return OwnersState::Denied(denied.why().to_owned());
        }
        if wanted.for_kind(kind).all(|id| self.schedule.is_answered(id)) {
            return OwnersState::Read;
        }
        match problems().next() {
            Some(problem) => OwnersState::Failed(problem.why().to_owned()),
            None => OwnersState::Waiting,
        }
    }
}
