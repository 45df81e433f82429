//! Follows the agent's pods for `top` and `list -w`, as the agent follows those of an API server.
//!
//! After a broken connection, the watch continues after the last version. If the agent no longer has that version, for
//! example because it was restarted, the pods are listed and compared with those known: no change is lost. Changes that undo
//! each other in the meantime are not seen.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use pod_index::{PodMeta, PodUid};
use pod_index_kubelet::sources::api_server::{ApiServer, Times};
use pod_index_kubelet::sources::{Problem, ProblemKind, SourceUpdate};

use crate::api::table::harmless;
use crate::config::failure::Failure;

/// Shortest and longest pause between attempts.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Namespace and name.
pub(crate) type Key = (String, String);

/// Receives the changes of pods. After the pods are listed again, also those of pods that have not changed.
pub(crate) trait Follower {
    /// What is kept of a pod, until its next change.
    type Kept;

    fn keep(&mut self, pod: &Pod) -> Self::Kept;

    /// A pod was added (`before` is `None`), changed, or removed (`after` is `None`).
    fn change(&mut self, key: &Key, before: Option<&Self::Kept>, after: Option<&Self::Kept>);

    /// No more changes are known for now. `false`: nobody reads them any more.
    fn flush(&mut self) -> Result<bool, Failure>;

    /// The agent does not answer, for this reason, or answers again.
    fn away(&mut self, problem: Option<&str>) {
        match problem {
            Some(problem) => {
                eprintln!("pod-index: {}; the watch continues when it answers", harmless(problem));
            }
            None => eprintln!("pod-index: the agent answers again"),
        }
    }
}

/// Follows the pods until nobody reads the changes any more.
pub(crate) async fn follow<F: Follower>(pods: ApiServer, follower: &mut F) -> Result<(), Failure> {
    let times = Times { backoff: WAITS, ..Times::default() };
    let mut updates = ApiServer { times, ..pods }.objects::<Pod>();
    let (mut status, mut known, mut is_away) = (updates.status(), Known(HashMap::new()), false);
    loop {
        tokio::select! {
            Some(update) = updates.next() => {
                known.apply(update, follower);
                if !follower.flush()? {
                    return Ok(());
                }
            }
            Ok(()) = status.changed() => {
                let status = status.borrow_and_update();
                let mut problems = status.problems.iter().filter(|problem| problem.kind() == ProblemKind::Request);
                let problem = problems.next().map(Problem::message);
                if problem.is_some() != is_away {
                    is_away = problem.is_some();
                    follower.away(problem);
                }
            }
            else => return Ok(()),
        }
    }
}

/// All pods that were told as added and not yet as removed.
struct Known<T>(HashMap<Key, (PodUid, T)>);

impl<T> Known<T> {
    fn apply(&mut self, update: SourceUpdate<Pod>, follower: &mut impl Follower<Kept = T>) {
        let keys = |is_gone: &dyn Fn(&Key, &PodUid) -> bool| -> Vec<Key> {
            let gone = self.0.iter().filter(|(key, (uid, _))| is_gone(key, uid));
            gone.map(|(key, _)| key.clone()).collect()
        };
        let (pods, gone) = match update {
            SourceUpdate::Upsert(pods) => (pods, Vec::new()),
            SourceUpdate::Set(pods) => {
                let listed: HashSet<_> = pods.iter().map(|pod| key(pod)).collect();
                (pods, keys(&|key, _| !listed.contains(key)))
            }
            SourceUpdate::Remove(uids) => (Vec::new(), keys(&|_, uid| uids.contains(uid))),
        };
        for key in gone {
            self.set(key, None, follower);
        }
        for pod in pods {
            let after = (PodUid::from(pod.uid()), follower.keep(&pod));
            self.set(key(&pod), Some(after), follower);
        }
    }

    /// Replaces what is known of a pod, and tells of it.
    fn set(&mut self, key: Key, after: Option<(PodUid, T)>, follower: &mut impl Follower<Kept = T>) {
        let mut before = self.0.remove(&key);
        if let Some((uid, gone)) = &before
            && after.as_ref().is_none_or(|(new, _)| new != uid)
        {
            follower.change(&key, Some(gone), None);
            before = None;
        }
        if let Some(after) = after {
            follower.change(&key, before.as_ref().map(|(_, before)| before), Some(&after.1));
            self.0.insert(key, after);
        }
    }
}

fn key(pod: &Pod) -> Key {
    (pod.namespace().to_owned(), pod.name().to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Keeps node names, and the changes in words.
    #[derive(Default)]
    struct Told(Vec<String>);

    impl Follower for Told {
        type Kept = String;

        fn keep(&mut self, pod: &Pod) -> String {
            pod.spec.clone().unwrap_or_default().node_name.unwrap_or_default()
        }

        fn change(&mut self, (_, name): &Key, before: Option<&String>, after: Option<&String>) {
            self.0.push(match (before, after) {
                (None, Some(node)) => format!("added {name} on {node}"),
                (Some(node), None) => format!("removed {name} on {node}"),
                (before, after) => format!("changed {name} {:?}", before != after),
            });
        }

        fn flush(&mut self) -> Result<bool, Failure> {
            Ok(true)
        }
    }

    fn pods<const N: usize>(pods: [(&str, &str, &str); N]) -> Vec<Arc<Pod>> {
        let pod = |(name, uid, node): (&str, &str, &str)| {
            let mut pod = Pod::default();
            pod.metadata.name = Some(name.to_owned());
            pod.metadata.uid = Some(uid.to_owned());
            pod.spec.get_or_insert_default().node_name = Some(node.to_owned());
            Arc::new(pod)
        };
        pods.map(pod).into()
    }

    #[test]
    fn only_differences_are_told() {
        let mut known = Known(HashMap::new());
        let mut apply = |update: SourceUpdate<Pod>| {
            let mut told = Told::default();
            known.apply(update, &mut told);
            told.0
        };
        let first =
            pods([("stays", "1", "a"), ("changes", "2", "a"), ("goes", "3", "a"), ("replaced", "4", "a")]);
        assert_eq!(
            apply(SourceUpdate::Set(first)),
            ["stays", "changes", "goes", "replaced"].map(|name| format!("added {name} on a"))
        );
        let again =
            pods([("stays", "1", "a"), ("changes", "2", "b"), ("replaced", "9", "b"), ("comes", "5", "a")]);
        assert_eq!(
            apply(SourceUpdate::Upsert(again)),
            [
                "changed stays false",
                "changed changes true",
                "removed replaced on a",
                "added replaced on b",
                "added comes on a"
            ]
        );
        let gone = || SourceUpdate::Remove(vec![PodUid::from("4"), PodUid::from("3")]);
        assert_eq!(apply(gone()), ["removed goes on a"], "the new pod of the name stays");
        assert_eq!(apply(gone()), [""; 0]);
        assert_eq!(
            apply(SourceUpdate::Set(pods([("comes", "5", "a")]))).len(),
            4,
            "a set of all pods tells which are gone"
        );
    }
}
