//! Finds the changed part of a set.
//!
//! If one of ten thousand manifests changes, the file source emits ten thousand pods, and all but one are the
//! same objects as before. An [`Edit`] is the part between the unchanged pods at the beginning and those at
//! the end. Each unchanged pod costs one pointer comparison.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::known::{Known, identity};
use crate::sources::SourcePod;
use pod_index::{FullName, PodUid};

/// A run of pods in a set that replaces a run of the previous set.
pub(super) struct Edit {
    /// Its range in the previous set.
    pub(super) old: Range<usize>,
    /// Its range in the new set.
    pub(super) new: Range<usize>,
    /// The identities of the new pods.
    pub(super) identities: Vec<(PodUid, FullName)>,
}

impl Edit {
    /// The edit that turns the known pods into `pods`. `None` if all pods have to be checked: nothing is
    /// unchanged, or a pod cannot be accepted because of its name, its UID, or another pod that has the same.
    pub(super) fn between<P: SourcePod>(known: &Known<P>, pods: &[Arc<P>]) -> Option<Self> {
        let before = known.said.as_slice();
        let same = |(before, now): &(&Arc<P>, &Arc<P>)| Arc::ptr_eq(before, now);
        let head = before.iter().zip(pods).take_while(same).count();
        let (old, new) = (before.get(head..)?, pods.get(head..)?);
        let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
        if head + tail == 0 {
            return None;
        }
        let (old, new) = (head..before.len() - tail, head..pods.len() - tail);

        let leave: HashSet<_> = before.get(old.clone())?.iter().map(|pod| PodUid::from(pod.uid())).collect();
        let mut identities: Vec<(PodUid, FullName)> = Vec::with_capacity(new.len());
        let (mut uids, mut names) = (HashSet::new(), HashSet::new());
        for pod in pods.get(new.clone())? {
            let (uid, name) = identity(&**pod).ok()?;
            let bearer = known.names.get(&name);
            let free = bearer.is_none_or(|bearer| leave.contains(bearer))
                && (leave.contains(&uid) || !known.pods.contains_key(&uid));
            if !free || !uids.insert(uid.clone()) || !names.insert(name.clone()) {
                return None;
            }
            identities.push((uid, name));
        }
        Some(Self { old, new, identities })
    }
}
