//! The writer: creates the next snapshot, publishes it, and frees old ones.
//!
//! This module decides when to publish and when to free. `update` builds the snapshot.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::id::{PodUid, UidRef};
use crate::moment::{Coverage, Moment, StepDetector};
use crate::pod::PodMeta;
use crate::snapshot::Snapshot;
use crate::table::versions::Versions;
use crate::table::wake::Announcer;
use crate::update::{Draft, RefusedPod, Upserted};

/// Number of retired snapshots that a publication checks. More than one, so that the queue shrinks after
/// readers held many; few, so that a thousand idle readers do not slow down each publication. It is no bound of what a
/// publication frees: one snapshot that was held for long may be large.
const RECLAIM_PER_PUBLICATION: usize = 4;

/// The only way to change an index.
///
/// There is one per index: it is not `Clone`, and its methods take `&mut self`. Put it on a thread of its own
/// behind a channel, or share it as a [`PodManager`](crate::PodManager).
///
/// # Freeing
/// A replaced snapshot goes into the writer's retire queue. The writer frees it once no reader holds it:
/// every publication checks a few, first those that were not checked for longest. An idle writer frees
/// nothing, so call [`reclaim`](Self::reclaim) now and then. When the writer is dropped, snapshots in use are
/// kept until the last handle of the index is dropped. [`docs::table`](crate::docs::table) explains which memory is freed when,
/// and what a snapshot costs that a reader holds for an hour.
///
/// Freed pages are reused: the writer keeps up to two mebibytes of them.
///
/// # Examples
/// ```
/// use pod_index::SimplePod;
///
/// let (mut writer, reader) = pod_index::new();
/// writer.upsert_pod(SimplePod::new("u1", "default", "web"))?;
/// writer.upsert_pod(SimplePod::new("u1", "default", "web"))?;
/// assert_eq!(reader.load().generation(), 2);
/// writer.remove_pod_by_uid("u1");
/// assert!(reader.load().pods().len() == 0);
/// # Ok::<(), pod_index::Error>(())
/// ```
///
/// A writer cannot be cloned:
/// ```compile_fail
/// fn assert_clone<T: Clone>() {}
/// assert_clone::<pod_index::Writer<pod_index::SimplePod>>();
/// ```
pub struct Writer<P> {
    pub(crate) versions: Versions<Snapshot<P>>,
    /// Tells followers, on drop, that the writer is gone.
    pub(crate) announcer: Announcer,
    pub(crate) steps: StepDetector,
}

/// One write of a batch.
///
/// # Examples
/// See [`Writer::apply`].
pub enum Operation<P> {
    /// See [`Writer::set_pods`].
    Set(Vec<Arc<P>>),
    /// See [`Writer::upsert_pod`].
    Upsert(Arc<P>),
    /// See [`Writer::remove_pod_by_uid`].
    Remove(PodUid),
}

/// The result of [`Writer::set_pods`] or [`Writer::apply`].
///
/// # Examples
/// ```
/// use pod_index::SimplePod;
///
/// let (mut writer, _reader) = pod_index::new();
/// let applied = writer.set_pods([SimplePod::new("u1", "default", "web"), SimplePod::new("", "default", "db")]);
/// assert_eq!((applied.published, applied.generation), (true, 1));
/// let refused = &applied.refused[0];
/// assert_eq!((refused.operation, refused.position), (0, 1)); // the second pod of the only operation
/// assert_eq!(refused.error.field, "metadata.uid");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[must_use = "some pods may have been refused"]
pub struct Applied {
    /// The generation of the snapshot that contains the result.
    pub generation: u64,
    /// Whether this write published that snapshot. A write without a net change publishes nothing. Adding the
    /// very object that is already stored is a change only if another pod holds its name.
    pub published: bool,
    /// The refused pods. All others were applied.
    pub refused: Vec<Refused>,
    /// The number of removed pods that were too old, and are no longer kept.
    pub forgotten: usize,
}

/// A pod that was refused.
///
/// # Examples
/// See [`Applied`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Refused {
    /// The index of the operation in the batch.
    pub operation: usize,
    /// The index of the pod in that operation; 0 except for a set.
    pub position: usize,
    /// The reason.
    pub error: Error,
}

impl<P: PodMeta> Writer<P> {
    /// The last published snapshot.
    #[must_use]
    pub fn current(&self) -> &Snapshot<P> {
        self.versions.current()
    }

    /// Stores a pod under its UID, and publishes: an unknown UID is added, a known one is replaced, and neither is an
    /// error. The returned [`Upserted`] says which it was.
    ///
    /// If the stored pod has another full name, or only one of the two is a mirror, its old entries are
    /// removed in the same step. If the very object is already stored, nothing is published.
    ///
    /// A pod that carries [`CONFIG_MIRROR_ANNOTATION`](crate::CONFIG_MIRROR_ANNOTATION) is stored as a mirror pod.
    ///
    /// # Errors
    /// If the UID, name or namespace is empty, or if the name or namespace contains `_`. The index is
    /// unchanged and nothing is published.
    ///
    /// # Complexity
    /// O(√n) amortised, and a few allocations: each table that changes copies a page and two arrays of links, about 2 KiB
    /// at 100,000 pods. When a table outgrows its arrays, one write copies all its links: about one for six pods.
    ///
    /// # Examples
    /// See [`Upserted`].
    ///
    /// Kubelet: `AddPod` and `UpdatePod`, which do the same (`pkg/kubelet/pod/pod_manager.go`).
    /// [`PodManager`](crate::PodManager) has both.
    #[doc(alias = "AddPod")]
    #[doc(alias = "UpdatePod")]
    pub fn upsert_pod(&mut self, pod: impl Into<Arc<P>>) -> Result<Upserted<P>, Error> {
        let pod = pod.into();
        let written = self.write(self.present(), |draft, now| {
            let upserted = draft.upsert(&pod, now);
            let changed = matches!(upserted, Ok(Upserted::Added | Upserted::Replaced(_)));
            Written { result: upserted, pods_changed: changed, removed_may_have_changed: changed }
        });
        // A refused pod's `Drop` may panic. Later, that would leak the error.
        drop(pod);
        written.result
    }

    /// Removes the pod stored under the UID of `pod`, publishes, and returns the stored pod.
    ///
    /// Only the UID of `pod` matters. An unknown UID is not an error: nothing is published, and `None` is
    /// returned.
    ///
    /// # Complexity
    /// O(√n) amortised, and a few allocations: each table that changes copies a page and two arrays of links, about 2 KiB
    /// at 100,000 pods. When a table outgrows its arrays, one write copies all its links: about one for six pods.
    ///
    /// Kubelet: `RemovePod`, until 1.27 `DeletePod` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "RemovePod")]
    #[doc(alias = "DeletePod")]
    pub fn remove_pod(&mut self, pod: &P) -> Option<Arc<P>> {
        self.remove_pod_by_uid(pod.uid())
    }

    /// Removes the pod or mirror pod with this UID; otherwise like [`remove_pod`](Self::remove_pod).
    pub fn remove_pod_by_uid<'u>(&mut self, uid: impl Into<UidRef<'u>>) -> Option<Arc<P>> {
        let uid = uid.into();
        let now = self.present();
        let Some(known) = self.current().find_known(uid) else {
            // A miss costs a lookup and no draft.
            self.advance(now?);
            return None;
        };
        let written = self.write(now, |draft, now| {
            let removed = draft.remove_found(uid, known, now);
            Written { result: removed, pods_changed: true, removed_may_have_changed: true }
        });
        Some(written.result)
    }

    /// Replaces all pods by `pods` in one publication.
    ///
    /// The result is the same as adding them one by one, in order, to an empty index. Refused pods are left
    /// out. If the very same objects are already stored, nothing is published.
    ///
    /// # Consistency
    /// Readers see either all of the old set or all of the new one.
    ///
    /// # Complexity
    /// O(n), even if few pods differ. Freeing the old set later is O(n) too; the writer does it, never a reader.
    ///
    /// Kubelet: `SetPods` (`pkg/kubelet/pod/pod_manager.go`).
    #[doc(alias = "SetPods")]
    pub fn set_pods(&mut self, pods: impl IntoIterator<Item = impl Into<Arc<P>>>) -> Applied {
        self.apply([Operation::Set(pods.into_iter().map(Into::into).collect())])
    }

    /// Applies any mix of operations, in their order, and publishes once.
    ///
    /// Refused operations are reported and left out; the rest is applied. Without a net change, nothing is
    /// published.
    ///
    /// # Consistency
    /// Readers see either nothing of the batch or all of it.
    ///
    /// # Complexity
    /// O(√n) amortised for each changed pod at most. Operations on the same parts of the index share the copied pages and
    /// arrays, so a large batch costs less per pod than single writes.
    ///
    /// # Examples
    /// ```
    /// use pod_index::{Operation, SimplePod};
    ///
    /// let (mut writer, reader) = pod_index::new();
    /// let applied = writer.apply([
    ///     Operation::Upsert(SimplePod::new("u1", "default", "web").into()),
    ///     Operation::Upsert(SimplePod::new("", "default", "web").into()),
    ///     Operation::Upsert(SimplePod::new("u2", "default", "web").into()),
    ///     Operation::Remove("u1".into()),
    /// ]);
    /// assert_eq!(applied.refused[0].operation, 1);
    /// assert_eq!(reader.load().pods().len(), 1);
    /// assert_eq!(reader.load().generation(), 1);
    /// ```
    pub fn apply(&mut self, batch: impl IntoIterator<Item = Operation<P>>) -> Applied {
        self.apply_to(self.present(), batch)
    }

    /// Applies a batch at a [`Moment`]: as [`apply`](Self::apply), whose moment is the present.
    ///
    /// Only an index that [keeps removed pods](crate::Options::keep_removed) reads the moment. Before the operations, it
    /// forgets the removed pods that are too old. After them, it notes the [`coverage`](Moment::coverage) of the moment.
    ///
    /// # Complexity
    /// That of [`apply`](Self::apply), and O(log n) for each key of each pod that is forgotten. O(n), once, if the
    /// wall clock was set, or if the coverage begins after a gap.
    ///
    /// # Examples
    /// See [`Moment`] and [`Snapshot::at`].
    pub fn apply_at(&mut self, moment: Moment, batch: impl IntoIterator<Item = Operation<P>>) -> Applied {
        self.apply_to(Some(moment), batch)
    }

    fn apply_to(&mut self, moment: Option<Moment>, batch: impl IntoIterator<Item = Operation<P>>) -> Applied {
        let written = self.write(moment, |draft, now| {
            let mut refused = Vec::new();
            for (number, operation) in batch.into_iter().enumerate() {
                let refuse = |RefusedPod { position, error }| Refused { operation: number, position, error };
                match operation {
                    Operation::Set(pods) => refused.extend(draft.set(pods, now).into_iter().map(refuse)),
                    Operation::Upsert(pod) => {
                        if let Err(error) = draft.upsert(&pod, now) {
                            refused.push(refuse(RefusedPod { position: 0, error }));
                        }
                    }
                    Operation::Remove(uid) => drop(draft.remove(uid.as_uid_ref(), now)),
                }
            }
            let pods_changed = draft.pods_differ();
            let removed_may_have_changed = draft.removed_pods_differ();
            Written { result: refused, pods_changed, removed_may_have_changed }
        });
        let Done { result: refused, published, forgotten } = written;
        Applied { generation: self.current().generation(), published, refused, forgotten }
    }

    /// Lets time pass without a write: forgets the removed pods that are too old, and notes the
    /// [`coverage`](Moment::coverage) of the moment. Returns the number of forgotten pods. The same as
    /// [`apply_at`](Self::apply_at) with an empty batch.
    ///
    /// Each write does this too. Call it at [`next_deadline`](Self::next_deadline): without writes, nothing else frees the
    /// memory of removed pods. If no pod is too old, nothing is published and nobody is woken. Exceptions, if the index
    /// [keeps times](crate::Options::keep_times): the wall clock was set, or the coverage begins after a gap.
    ///
    /// # Complexity
    /// O(log n) for n removed pods if none is too old, otherwise that of [`apply_at`](Self::apply_at).
    ///
    /// # Examples
    /// See [`RemovedPods`](crate::RemovedPods).
    ///
    /// Kubelet: none; its pod manager forgets a removed pod at once.
    pub fn advance(&mut self, moment: Moment) -> usize {
        let is_due = self.next_deadline().is_some_and(|deadline| moment.instant >= deadline);
        if !is_due && self.is_ordinary(&moment) {
            self.steps.has_stepped(&moment);
            self.cover_current(self.current().times.as_ref().and_then(|times| times.believed(&moment)));
            return 0;
        }
        self.apply_at(moment, []).forgotten
    }

    /// How often the wall clock was set since the writer was made, as far as the [moments](Moment) of its writes show. After
    /// each time, an index that [keeps times](crate::Options::keep_times) knows nothing of the times before.
    ///
    /// # Complexity
    /// O(1).
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use pod_index::{Moment, Options, SimplePod, Time};
    ///
    /// let options = Options::default().keep_removed(Duration::from_secs(60), 100).keep_times(true);
    /// let (mut writer, _reader) = pod_index::with_options::<SimplePod>(options);
    /// let start = Instant::now();
    /// writer.advance(Moment::new(start, Time::from_seconds(1_000)));
    /// writer.advance(Moment::new(start + Duration::from_secs(1), Time::from_seconds(1_001)));
    /// assert_eq!(writer.clock_steps(), 0);
    /// writer.advance(Moment::new(start + Duration::from_secs(2), Time::from_seconds(5_000)));
    /// assert_eq!(writer.clock_steps(), 1);
    /// ```
    #[must_use]
    pub fn clock_steps(&self) -> u64 {
        self.steps.count
    }

    /// Whether nothing of a moment changes what is known of the past: neither was the wall clock set, nor was there a gap
    /// before its coverage.
    fn is_ordinary(&self, moment: &Moment) -> bool {
        let Some(times) = &self.current().times else { return true };
        let coverage = times.believed(moment);
        self.steps.agrees(moment) && coverage.is_none_or(|coverage| times.gap_before(coverage).is_none())
    }

    /// The present, if the index keeps anything that needs a time.
    fn present(&self) -> Option<Moment> {
        self.current().removed.is_some().then(Moment::now)
    }

    /// One write: time passes, then the pods change, then the coverage of the moment is noted. What came of it is published,
    /// unless it is nothing.
    fn write<R>(
        &mut self,
        moment: Option<Moment>,
        change: impl FnOnce(&mut Draft<'_, P>, Option<&Moment>) -> Written<R>,
    ) -> Done<R> {
        // An index that keeps nothing of the past reads no moment.
        let moment = moment.filter(|_| self.current().removed.is_some());
        let moment = moment.as_ref();
        let mut steps = self.steps;
        let mut draft = self.versions.draft();
        let passed = moment.map_or_else(Passed::default, |now| pass_time(&mut draft, &mut steps, now));
        let written = change(&mut draft, moment);
        let noted = moment.map_or_else(Noted::default, |now| note_coverage(&mut draft, now));

        let published = passed.changes_anything() || written.changes_anything() || noted.changed_past;
        if !written.pods_changed {
            draft.changes_no_pods();
        }
        // A panic until here, and one of a draft that is dropped, undoes the write: the steps of the clock, too.
        if published {
            self.steps = steps;
            publish(draft, &self.announcer);
        } else {
            drop(draft);
            self.steps = steps;
            self.cover_current(noted.coverage);
        }
        Done { result: written.result, published, forgotten: passed.forgotten }
    }

    /// Moves the end of the coverage on in the current snapshot, which needs no publication: nothing has happened since that
    /// the snapshot does not have, and there is no gap before the coverage.
    fn cover_current(&self, coverage: Option<Coverage>) {
        if let (Some(times), Some(coverage)) = (&self.current().times, coverage) {
            times.cover_until(coverage.until);
        }
    }
}

/// What the passing of time did to a draft.
#[derive(Default)]
struct Passed {
    /// Number of removed pods that were too old.
    forgotten: usize,
    /// The wall clock was set, so that all times begin anew.
    clock_was_set: bool,
}

impl Passed {
    fn changes_anything(&self) -> bool {
        self.forgotten > 0 || self.clock_was_set
    }
}

/// Lets time pass until this moment: notices a step of the wall clock, and forgets what is too old.
fn pass_time<P: PodMeta>(draft: &mut Draft<'_, P>, steps: &mut StepDetector, now: &Moment) -> Passed {
    let clock_was_set = draft.times.is_some() && steps.has_stepped(now);
    if clock_was_set {
        draft.begin_times_anew(now);
    }
    Passed { forgotten: draft.forget(now), clock_was_set }
}

/// What a write did to its draft.
struct Written<R> {
    result: R,
    pods_changed: bool,
    removed_may_have_changed: bool,
}

impl<R> Written<R> {
    fn changes_anything(&self) -> bool {
        self.pods_changed || self.removed_may_have_changed
    }
}

/// What the coverage of a moment did to a draft.
#[derive(Default)]
struct Noted {
    coverage: Option<Coverage>,
    /// It begins after a gap.
    changed_past: bool,
}

/// Notes the coverage of a moment, as far as it can be believed.
fn note_coverage<P: PodMeta>(draft: &mut Draft<'_, P>, now: &Moment) -> Noted {
    let coverage = draft.times.as_ref().and_then(|times| times.believed(now));
    let changed_past = coverage.is_some_and(|coverage| draft.cover(coverage, now));
    Noted { coverage, changed_past }
}

/// What came of a write.
struct Done<R> {
    result: R,
    published: bool,
    forgotten: usize,
}

/// Publishes the draft, and wakes the followers before anything is freed.
fn publish<P>(draft: Draft<'_, P>, announcer: &Announcer) {
    let versions = draft.publish();
    announcer.published();
    versions.reclaim_some(RECLAIM_PER_PUBLICATION);
}

impl<P> Writer<P> {
    /// Frees the replaced snapshots that no reader holds, and returns how many are left.
    ///
    /// # Complexity
    /// O(retired snapshots), plus freeing what only those had: their pages, and their pods with their `Drop`. After a large
    /// snapshot was held for long, that is a long call: see [`OwnedSnapshot`](crate::OwnedSnapshot#what-it-costs-to-hold-one).
    pub fn reclaim(&mut self) -> usize {
        self.versions.reclaim_all();
        self.versions.retired()
    }

    /// When the next removed pod is too old: call [`advance`](Self::advance) then. `None` if no removed pod is kept, or if
    /// the limit of their age is too long for an [`Instant`].
    ///
    /// # Complexity
    /// O(log n) for n removed pods.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.versions.current().next_deadline()
    }

    /// Number of replaced snapshots that are not freed yet: readers hold them, or no publication has looked at them since they
    /// were let go.
    ///
    /// After [`reclaim`](Self::reclaim), at most the number of live guards, cached readers, kept snapshots, and followers
    /// ([`Changes`](crate::Changes); a [`Step`](crate::Step) counts as two). Before, about a third more, because a publication checks
    /// only a few.
    ///
    /// A growing number means that more and more are held. It counts snapshots: a reader that holds one for an hour counts as one,
    /// however much has changed since. [`oldest_retired`](Self::oldest_retired) notices that reader.
    ///
    /// # Complexity
    /// O(1).
    #[must_use]
    pub fn retired_snapshots(&self) -> usize {
        self.versions.retired()
    }

    /// The [`generation`](Snapshot::generation) of the oldest replaced snapshot that is not freed yet. `None` if all are.
    ///
    /// Does a reader hold a snapshot for too long? Note when this value last changed. While pods change, the value moves on with
    /// them; if it stands still for a minute, a reader has held that snapshot for as long. This works for one reader among many,
    /// which [`retired_snapshots`](Self::retired_snapshots) does not show.
    ///
    /// # Complexity
    /// O(1).
    ///
    /// # Examples
    /// ```
    /// use pod_index::SimplePod;
    ///
    /// let (mut writer, reader) = pod_index::new();
    /// let forgotten = reader.snapshot();
    /// for version in 0..100 {
    ///     let mut pod = SimplePod::new("u1", "shop", "web-0");
    ///     pod.annotations.insert("version".into(), version.to_string());
    ///     writer.upsert_pod(pod)?;
    ///     writer.reclaim();
    /// }
    /// assert_eq!(writer.oldest_retired(), Some(forgotten.generation())); // the empty snapshot, since the beginning
    /// drop(forgotten);
    /// writer.reclaim();
    /// assert_eq!(writer.oldest_retired(), None);
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    ///
    /// Kubelet: none; Go's garbage collector frees what nobody reads.
    #[must_use]
    pub fn oldest_retired(&self) -> Option<u64> {
        self.versions.oldest_retired().map(Snapshot::generation)
    }
}

impl<P: PodMeta> fmt::Debug for Operation<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(pods) => write!(f, "Set({} pods)", pods.len()),
            Self::Upsert(pod) => write!(f, "Upsert({})", pod.uid()),
            Self::Remove(uid) => write!(f, "Remove({uid})"),
        }
    }
}

shown!(Writer, |it| current: it.current(), retired_snapshots: it.retired_snapshots());
