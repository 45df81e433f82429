//! How little of a set has to be looked at.
//!
//! Whoever edits one of ten thousand manifests makes the file source say ten thousand pods, and all but one are the very
//! objects that it said before. An [`Edit`] is what lies between those that stayed at the beginning and those that stayed
//! at the end; the rest costs one comparison of pointers each.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::known::{Known, identity};
use crate::sources::SourcePod;
use pod_index::{FullName, PodUid};

/// A run of pods in a set that takes the place of another run in the set before.
pub(super) struct Edit {
    /// Where in the set before.
    pub(super) old: Range<usize>,
    /// Where in the new one.
    pub(super) new: Range<usize>,
    /// Who the new ones are.
    pub(super) identities: Vec<(PodUid, FullName)>,
}

impl Edit {
    /// The edit that makes `pods` of what is known. None if it is not clear without a look at all of them: nothing stayed,
    /// or some pod cannot be taken because of its name, its UID, or another pod that has them.
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
