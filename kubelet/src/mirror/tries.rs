//! The state of one name: when it may be tried again, and why not earlier. Pure: all times are arguments.
//!
//! There are two kinds of waits. A failure is retried after a wait. A change that another client keeps undoing is
//! repeated after growing waits. So two agents that manage the mirrors of one node by mistake stop undoing each
//! other's changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;

use super::attempt::Expected;
use super::client::{MirrorErrorKind, MirrorFailure};
use super::plan::{MirrorState, Planned};
use super::status::WaitsFor;
use crate::backoff::{Backoff, Pauses, bounded, jitter};
use pod_index::{CONFIG_HASH_ANNOTATION, PodMeta};

/// How long the index may take to show a change before it is repeated.
const EXPECTATION: Duration = Duration::from_secs(30);
/// How many corrections of a mirror need no wait, for example after manual deletions.
const UNDISTURBED: u32 = 3;
const CONTENDED: &str = "something keeps undoing the correction; does a kubelet, or another agent with other manifests, \
                         also manage the mirror pods of this node?";

/// The first and the longest wait, of each kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) failure: Pauses,
    pub(super) contention: Pauses,
}

/// A change that was made.
pub(super) struct Awaited {
    pub(super) change: Expected,
    pub(super) since: Instant,
}

/// How often a mirror pod was corrected, and when last.
#[derive(Clone, Copy)]
struct Corrections {
    count: u32,
    last: Instant,
}

pub(super) struct Tries {
    waits: Waits,
    /// The version of the static pod that this state is about; `None` for an orphan.
    pod: Option<Arc<Pod>>,
    /// The number of its last attempt among those of all names. Not its time: the clock is not a reliable order.
    pub(super) last: Option<u64>,
    /// The change that the index does not show yet.
    pub(super) awaited: Option<Awaited>,
    corrections: Option<Corrections>,
    /// The last failure, or the contention.
    pub(super) failure: Option<MirrorFailure>,
    /// The waits after failures.
    backoff: Backoff,
    /// When the next attempt may begin.
    until: Option<Instant>,
}

impl Tries {
    pub(super) fn new(pod: Option<Arc<Pod>>, waits: Waits) -> Self {
        let backoff = Backoff::new(waits.failure.first, waits.failure.longest);
        Self { waits, pod, last: None, awaited: None, corrections: None, failure: None, backoff, until: None }
    }

    /// Updates the state to match the index. Returns whether there is anything left to remember.
    pub(super) fn settle(
        &mut self,
        planned: Option<&Planned>,
        is_shown: impl Fn(&Expected) -> bool,
        now: Instant,
    ) -> bool {
        self.awaited.take_if(|awaited| {
            is_shown(&awaited.change) || now.saturating_duration_since(awaited.since) >= EXPECTATION
        });
        // Until both of two competing agents have waited, and a while longer.
        let memory = self.waits.contention.longest.saturating_mul(3);
        if self.corrections.is_some_and(|made| now.saturating_duration_since(made.last) >= memory) {
            self.begin_anew(self.pod.clone());
        }
        let Some(planned) = planned else { return self.awaited.is_some() || self.corrections.is_some() };
        if !self.is_about(planned.pod.as_ref()) {
            // An edited pod is tried at once, whatever happened to its previous version.
            self.begin_anew(planned.pod.clone());
        }
        if planned.state != MirrorState::InSync {
            return true;
        }
        self.awaited = None;
        if self.failure.as_ref().is_none_or(|failure| failure.kind != MirrorErrorKind::Contended) {
            let corrections = self.corrections;
            self.begin_anew(self.pod.clone());
            self.corrections = corrections;
        }
        self.corrections.is_some()
    }

    fn begin_anew(&mut self, pod: Option<Arc<Pod>>) {
        *self = Self { awaited: self.awaited.take(), ..Self::new(pod, self.waits) };
    }

    /// Whether this state is about this version of the pod.
    pub(super) fn is_about(&self, pod: Option<&Arc<Pod>>) -> bool {
        match (&self.pod, pod) {
            (None, None) => true,
            (Some(one), Some(other)) => {
                let [hash, other_hash] = [one, other].map(|pod| pod.annotation(CONFIG_HASH_ANNOTATION));
                // With an explicit UID, all versions have the same hash.
                Arc::ptr_eq(one, other) || (hash == other_hash && one.spec == other.spec)
            }
            _ => false,
        }
    }

    /// Records a failure. Returns it if it differs from the last one.
    pub(super) fn fail(&mut self, failure: MirrorFailure, now: Instant) -> Option<&MirrorFailure> {
        self.until = Some(now + self.backoff.wait(now));
        let is_new = self.failure.as_ref().is_none_or(|last| last.message != failure.message);
        Some(&*self.failure.insert(failure)).filter(|_| is_new)
    }

    /// Records a correction. Returns the contention if this is the first one that shows it.
    pub(super) fn succeed(&mut self, now: Instant) -> Option<&MirrorFailure> {
        let count = self.corrections.map_or(1, |before| before.count.saturating_add(1));
        self.corrections = Some(Corrections { count, last: now });
        self.failure = None;
        self.until = None;
        let doublings = count.checked_sub(UNDISTURBED)?;
        let Pauses { first, longest } = self.waits.contention;
        let wait = bounded(first.saturating_mul(2_u32.saturating_pow(doublings)).min(longest));
        // Otherwise two agents that started at once would meet each time.
        self.until = Some(now + wait.mul_f64(jitter()));
        let contended = self.failure.insert(MirrorFailure::new(MirrorErrorKind::Contended, CONTENDED));
        Some(&*contended).filter(|_| doublings == 0)
    }

    /// What has to happen before the next attempt.
    pub(super) fn waits_for(&self, now: Instant) -> Option<WaitsFor> {
        if self.awaited.is_some() {
            return Some(WaitsFor::Index);
        }
        let failure = self.failure.as_ref().filter(|_| self.until.is_some_and(|until| now < until))?;
        let is_contended = failure.kind == MirrorErrorKind::Contended;
        Some(if is_contended { WaitsFor::Contention } else { WaitsFor::BackOff })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_index::FullName;

    const SECOND: Duration = Duration::from_secs(1);
    const WAITS: Waits = Waits {
        failure: Pauses::new(SECOND, Duration::from_secs(60)),
        contention: Pauses::new(SECOND, Duration::from_secs(300)),
    };

    fn pod(hash: &str, image: &str) -> Arc<Pod> {
        let pod = serde_json::json!({
            "metadata": { "name": "web", "namespace": "default", "annotations": { CONFIG_HASH_ANNOTATION: hash } },
            "spec": { "containers": [{ "name": "c", "image": image }] },
        });
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn planned(pod: &Arc<Pod>, state: MirrorState) -> Planned {
        let full_name = FullName::new("default", "web").expect("a full name");
        Planned { full_name, pod: Some(Arc::clone(pod)), mirror: None, state }
    }

    #[test]
    fn repeatedly_undone_corrections_wait_longer_each_time_and_reset_after_a_quiet_period() {
        let web = pod("1", "i");
        let (mut tries, mut now) = (Tries::new(Some(Arc::clone(&web)), WAITS), Instant::now());
        let mut is_shortened = false;
        for (news, whole) in [(false, 0), (false, 0), (true, 1), (false, 2), (false, 4), (false, 8)]
            .into_iter()
            .chain([16, 32, 64, 128, 256, 300, 300].map(|whole| (false, whole)))
        {
            assert_eq!(tries.succeed(now).is_some(), news);
            assert!(
                tries.settle(Some(&planned(&web, MirrorState::InSync)), |_| true, now),
                "it is remembered"
            );
            assert_eq!(tries.waits_for(now), (whole > 0).then_some(WaitsFor::Contention));
            assert_eq!(tries.failure.is_some(), whole > 0, "reported even while it is in sync");
            if let Some(next_try) = tries.until {
                let wait = next_try.saturating_duration_since(now);
                // Shortened by up to a third, and rounded.
                let is_long = wait + Duration::from_nanos(1) >= whole * SECOND * 2 / 3;
                assert!(is_long && wait <= whole * SECOND, "{wait:?} of {whole} s");
                is_shortened |= wait < whole * SECOND;
                // The other agent waits as long, and then undoes the change.
                now += wait + whole * SECOND;
                assert_eq!(tries.waits_for(now), None);
            }
        }
        assert!(is_shortened, "at random");
        tries.succeed(now);
        assert!(tries.settle(None, |_| true, now + 899 * SECOND), "its name may come back");
        let later = now + 900 * SECOND;
        assert!(!tries.settle(Some(&planned(&web, MirrorState::InSync)), |_| true, later));
        assert_eq!((tries.waits_for(later), tries.failure.as_ref()), (None, None));
    }

    #[test]
    fn a_new_version_resets_the_waits_but_not_the_pending_index_update() {
        let now = Instant::now();
        for other in [pod("2", "i"), pod("1", "j")] {
            let mut tries = Tries::new(Some(pod("1", "i")), WAITS);
            for _ in 0..3 {
                tries.succeed(now);
            }
            tries.fail(MirrorFailure::new(MirrorErrorKind::Refused, ""), now);
            let same = planned(&pod("1", "i"), MirrorState::Missing);
            assert!(tries.settle(Some(&same), |_| false, now));
            assert_eq!(tries.waits_for(now), Some(WaitsFor::BackOff), "another object, the same version");
            tries.awaited = Some(Awaited { change: Expected::Gone("uid".into()), since: now });
            assert!(tries.settle(Some(&planned(&other, MirrorState::Missing)), |_| false, now));
            assert_eq!(tries.waits_for(now), Some(WaitsFor::Index));
            assert!(tries.settle(Some(&planned(&other, MirrorState::Missing)), |_| true, now));
            assert_eq!((tries.waits_for(now), tries.failure.as_ref()), (None, None));
        }
    }
}
