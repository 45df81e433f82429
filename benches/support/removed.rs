//! Removed pods that the index keeps: the cost of keeping them, and their lookups.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use pod_index::identity::ContainerId;
use pod_index::{Options, PodMeta, Writer};

use crate::designs::{Cached, Design};
use crate::figures::Figure;
use crate::keys::{BY_UID, Keyed, filled, keyed};
use crate::rounds::Rounds;
use crate::workload::Workload;

/// The baseline: the removed pod is not kept.
pub const NOT_KEPT: &str = "a removal and an addition";
/// The agent's limit of removed pods.
const MOST: usize = 10_000;
/// Pods replaced per run.
const WRITES: usize = 5_000;

fn kept() -> Options {
    Options::new().keep_removed(Duration::from_secs(60), MOST)
}

/// Pairs of a removal and the addition of the pod that was removed longest ago: one publication each. Compares an index
/// that keeps removed pods with one that does not.
#[must_use]
pub fn removals(workload: &Workload, time: Duration) -> Vec<Figure> {
    let pods = keyed(workload, true, 1);
    let mut rounds = Rounds::default();
    for (what, options) in [(NOT_KEPT, Options::new()), ("the same, and the removed pod is kept", kept())] {
        // Half of the pods are in the index. The others take turns with them.
        let living = pods.len() / 2;
        let (mut writer, reader) = filled(&pods[..living], options);
        let (mut at, pods) = (0, pods.clone());
        rounds.case(what, Cached::NAME, WRITES, move || {
            let _ = &reader;
            for _ in 0..WRITES {
                let (leaves, comes) = (&pods[at % pods.len()], &pods[(at + living) % pods.len()]);
                assert!(writer.remove_pod_by_uid(leaves.uid()).is_some(), "a living pod");
                writer.upsert_pod(Arc::clone(comes)).expect("a good pod");
                at += 1;
            }
        });
    }
    rounds.measure(workload.pods.len(), time)
}

/// Lookups of removed pods, beside that of a living pod by its UID in the same index.
#[must_use]
pub fn reads(workload: &mut Workload, time: Duration) -> Vec<Figure> {
    let pods = keyed(workload, true, 1);
    let pods = workload.shuffled(&pods);
    // The number of removed pods, and of living pods that are looked up.
    let count = MOST.min(pods.len() / 2);
    let (removed, living) = pods.split_at(count);
    let (mut writer, mut reader) = filled(&pods, kept());
    remove(&mut writer, removed);
    let uids = |pods: &[Arc<Keyed>]| pods.iter().map(|pod| Box::from(pod.uid())).collect::<Vec<Box<str>>>();
    let living = uids(&workload.shuffled(&living[..count]));
    let removed = workload.shuffled(removed);
    let ips: Vec<_> = removed.iter().filter_map(|pod| pod.ip()).collect();
    let texts = removed.iter().filter_map(|pod| pod.container());
    let ids: Vec<ContainerId> = texts.map(|text| text.parse().expect("64 digits")).collect();
    let removed = uids(&removed);
    assert!(reader.load().removed().len() == count && count > 0, "all are kept");
    let mut rounds = Rounds::default();
    macro_rules! case {
        ($what:expr, $keys:ident, |$index:ident, $key:ident| $look_up:expr) => {{
            let mut $index = reader.clone();
            rounds.case($what, Cached::NAME, $keys.len(), move || {
                for $key in &$keys {
                    let $key = black_box($key);
                    assert!(black_box($look_up), "every key has a pod");
                }
            });
        }};
    }
    case!(BY_UID, living, |index, uid| index.load().pod_by_uid(&**uid).is_some());
    case!("UID, removed", removed, |index, uid| index.load().removed().get(&**uid).is_some());
    case!("IP, removed", ips, |index, ip| index.load().removed().get(*ip).is_some());
    case!("container ID, parsed, removed", ids, |index, id| index.load().removed().get(*id).is_some());
    let figures = rounds.measure(workload.pods.len(), time);
    drop(writer);
    figures
}

fn remove(writer: &mut Writer<Keyed>, pods: &[Arc<Keyed>]) {
    for pod in pods {
        assert!(writer.remove_pod_by_uid(pod.uid()).is_some(), "a known pod");
    }
}
