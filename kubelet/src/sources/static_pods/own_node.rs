//! The check of mirror pods against the UID of their Node object.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use super::StaticPodClaim;

/// The Node object of the node that the agent runs on, as the API server has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnNode {
    /// Its UID.
    pub uid: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When it was requested. Mirror pods that came later are not checked against it.
    pub asked: Instant,
}

/// Whether a mirror pod's owner is the Node object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sources) enum Ownership {
    /// It is, or an earlier Node object of that name was.
    Confirmed,
    /// The Node object was last read before the mirror pod came, or never.
    Unread,
    /// It is not. This is final: a Node object created later does not own older mirror pods.
    Refuted,
}

/// What is known about the own node's Node object.
#[derive(Debug, Default)]
pub(in crate::sources) struct NodeCheck {
    known: Option<OwnNode>,
    /// Whether the last read succeeded.
    is_readable: bool,
    /// Whether to read it, because there are new mirror pods that it may not own.
    pub(in crate::sources) is_due: bool,
}

impl NodeCheck {
    /// Records the result of a read. A failed one does not replace the last known Node object.
    pub(in crate::sources) fn read(&mut self, node: Option<OwnNode>) {
        self.is_readable = node.is_some();
        self.known = node.or(self.known.take());
    }

    /// Checks the owner of a mirror pod of the own node, which was first seen at this time; `None` means in the API
    /// server's first list.
    pub(in crate::sources) fn ownership(&self, claim: &StaticPodClaim, seen: Option<Instant>) -> Ownership {
        let Some(node) = &self.known else { return Ownership::Unread };
        // A mirror pod older than its Node object belonged to an earlier one of that name. The static pod may
        // still run. The garbage collector deletes the mirror pod, and the kubelet creates a new one.
        let is_older = claim.created.zip(node.created).is_some_and(|(mirror, node)| mirror <= node);
        if claim.owner == node.uid || is_older {
            Ownership::Confirmed
        } else if seen < Some(node.asked) {
            Ownership::Refuted
        } else {
            Ownership::Unread
        }
    }

    /// Whether a claim has to wait for the next read. If reads fail, it does not wait.
    pub(in crate::sources) fn defers(&self, ownership: Ownership) -> bool {
        ownership == Ownership::Unread && self.is_readable
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pod_index::PodUid;

    use super::*;

    #[test]
    fn a_mirror_pod_is_refuted_only_by_a_later_read_of_an_older_node() {
        let start = Instant::now();
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let mirror = |owner: &str, created: i64, seen: u64| {
            let claim = StaticPodClaim {
                uid: PodUid::from("s"),
                node: "n1".to_owned(),
                owner: owner.to_owned(),
                created: Some(at(created)),
                is_terminating: false,
                ended: false,
                has_status: true,
            };
            (claim, Some(start + Duration::from_secs(seen)))
        };
        let node = |uid: &str, created: i64, asked: u64| OwnNode {
            uid: uid.to_owned(),
            created: Some(at(created)),
            asked: start + Duration::from_secs(asked),
        };
        let mut check = NodeCheck::default();
        let ownership = |check: &NodeCheck, (claim, seen)| check.ownership(&claim, seen);
        assert_eq!(ownership(&check, mirror("a", 100, 0)), Ownership::Unread);
        assert!(!check.defers(Ownership::Unread), "nothing is known");
        check.read(Some(node("a", 50, 10)));
        for (mirror, expected) in [
            (mirror("a", 100, 0), Ownership::Confirmed),
            (mirror("a", 100, 20), Ownership::Confirmed),
            (mirror("b", 100, 9), Ownership::Refuted),
            (mirror("b", 100, 10), Ownership::Unread),
            (mirror("b", 50, 9), Ownership::Confirmed),
            (mirror("b", 51, 9), Ownership::Refuted),
        ] {
            assert_eq!(ownership(&check, mirror.clone()), expected, "{mirror:?}");
        }
        assert!(check.defers(Ownership::Unread) && !check.defers(Ownership::Confirmed));
        check.read(None);
        assert_eq!(ownership(&check, mirror("b", 100, 9)), Ownership::Refuted, "a failure forgets nothing");
        assert!(!check.defers(Ownership::Unread));
    }
}
