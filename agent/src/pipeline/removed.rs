//! Removed pods: their mark in an answer, and the memory of those that are kept.
//!
//! Whoever may create and delete pods decides how many are removed, and how large they are. The index limits their number
//! and age. Here their memory gets a limit, whatever is in them. A removed pod is kept in one of four forms:
//!
//! | form | as long as |
//! |---|---|
//! | whole | those that are kept whole take at most [`WHOLE`] bytes together |
//! | its [`outline`] | outlines take at most [`OUTLINES`] bytes together |
//! | its [`identity`] | identities take at most [`IDENTITY`] bytes together for each pod that the index may keep |
//! | the [`least`] | always |

mod outline;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use pod_index_kubelet::memory::memory_of;

use self::outline::{identity, least, outline};

/// The annotation of a removed pod: when it was removed, in RFC 3339.
pub(crate) const REMOVED_ANNOTATION: &str = "pod-index/removed";

/// The memory of removed pods that are kept whole, in bytes.
const WHOLE: usize = 16 << 20;

/// The memory of those that are kept in outline, in bytes.
const OUTLINES: usize = 8 << 20;

/// The memory of those of which the identity is kept, in bytes, for each removed pod that the index keeps at most. A usual one
/// takes twice as much, so half of the usual ones have room.
const IDENTITY: usize = 6 << 10;

/// The removed pods that the index keeps, and their memory.
#[derive(Debug)]
pub(crate) struct KeptRemoved {
    /// How long the index keeps a removed pod, and how many.
    max_age: Duration,
    max_pods: usize,
    /// The pod that was removed first is the first one.
    pods: VecDeque<Kept>,
    /// The sums of their memory, by their form.
    whole: usize,
    outlines: usize,
    identities: usize,
}

#[derive(Debug)]
struct Kept {
    removed: Instant,
    form: Form,
}

/// How a removed pod is kept, and the memory that counts for a limit.
#[derive(Debug)]
enum Form {
    Whole { bytes: usize },
    Outline { bytes: usize },
    Identity { bytes: usize },
    Least,
}

impl KeptRemoved {
    /// None yet. The index keeps removed pods for this time, and at most so many.
    pub(crate) fn new(max_age: Duration, max_pods: usize) -> Self {
        Self { max_age, max_pods, pods: VecDeque::new(), whole: 0, outlines: 0, identities: 0 }
    }

    /// What to replace this pod by before it is removed. `None`: nothing, because it is kept whole or not at all.
    pub(super) fn instead(&mut self, pod: &Pod, now: Instant) -> Option<Pod> {
        if self.max_age.is_zero() || self.max_pods == 0 {
            return None;
        }
        self.forget(now);
        let (form, instead) = self.form_of(pod);
        match form {
            Form::Whole { bytes } => self.whole += bytes,
            Form::Outline { bytes } => self.outlines += bytes,
            Form::Identity { bytes } => self.identities += bytes,
            Form::Least => {}
        }
        self.pods.push_back(Kept { removed: now, form });
        instead
    }

    /// The form for which there is room, and the pod in it, unless it is the whole one.
    fn form_of(&self, pod: &Pod) -> (Form, Option<Pod>) {
        let bytes = memory_of(pod);
        if self.whole + bytes <= WHOLE {
            return (Form::Whole { bytes }, None);
        }
        let outline = outline(pod);
        let bytes = memory_of(&outline);
        if self.outlines + bytes <= OUTLINES {
            return (Form::Outline { bytes }, Some(outline));
        }
        let identity = identity(pod);
        let bytes = memory_of(&identity);
        if self.identities + bytes <= self.max_pods.saturating_mul(IDENTITY) {
            return (Form::Identity { bytes }, Some(identity));
        }
        (Form::Least, Some(least(pod)))
    }

    /// Drops what the index forgets: the pods that are too old, and the first one, so that there is room for another.
    fn forget(&mut self, now: Instant) {
        while let Some(first) = self.pods.front() {
            let is_too_old = now.duration_since(first.removed) >= self.max_age;
            if !is_too_old && self.pods.len() < self.max_pods {
                return;
            }
            match first.form {
                Form::Whole { bytes } => self.whole -= bytes,
                Form::Outline { bytes } => self.outlines -= bytes,
                Form::Identity { bytes } => self.identities -= bytes,
                Form::Least => {}
            }
            self.pods.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
