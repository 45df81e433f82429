//! Reference counts, by object and by pod UID. Pure: no client, no clock, no threads.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::key::ObjectKey;
use pod_index::PodUid;

/// The registered pods and the objects that they name.
#[derive(Default)]
pub(super) struct Registry {
    /// What each registered pod names. Releasing uses this record, not the pod's current content.
    pods: HashMap<PodUid, BTreeSet<ObjectKey>>,
    /// The pods that name each object; never an empty set.
    references: HashMap<ObjectKey, HashSet<PodUid>>,
}

/// A pod and the objects it names from now on. `None`: unregister the pod.
pub(super) type Registration = (PodUid, Option<BTreeSet<ObjectKey>>);

/// The effect of a step on the objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Transition {
    /// Objects that no pod named before.
    pub(super) taken: BTreeSet<ObjectKey>,
    /// Objects that at least one more pod names now, including those in `taken`.
    pub(super) named_anew: BTreeSet<ObjectKey>,
    /// Objects that no pod names any more.
    pub(super) released: BTreeSet<ObjectKey>,
}

impl Registry {
    /// Registers and unregisters pods in one step. All new references are taken before old ones are released,
    /// so that an object that passes from one pod to another is neither released nor taken.
    pub(super) fn apply(&mut self, registrations: impl IntoIterator<Item = Registration>) -> Transition {
        let mut step = Transition::default();
        let mut dropped = Vec::new();
        for (uid, now) in registrations {
            let before = self.pods.remove(&uid).unwrap_or_default();
            for key in now.iter().flatten().filter(|key| !before.contains(*key)) {
                let pods = self.references.entry(key.clone()).or_default();
                if pods.is_empty() {
                    step.taken.insert(key.clone());
                }
                pods.insert(uid.clone());
                step.named_anew.insert(key.clone());
            }
            let keeps = |key: &ObjectKey| now.as_ref().is_some_and(|now| now.contains(key));
            dropped.extend(before.into_iter().filter(|key| !keeps(key)).map(|key| (key, uid.clone())));
            if let Some(now) = now {
                self.pods.insert(uid, now);
            }
        }
        for (key, uid) in dropped {
            // Named again by a later registration of the same step.
            if self.pods.get(&uid).is_some_and(|names| names.contains(&key)) {
                continue;
            }
            let Some(pods) = self.references.get_mut(&key) else { continue };
            pods.remove(&uid);
            if pods.is_empty() {
                self.references.remove(&key);
                // Taken and released in the same step: no effect.
                if !step.taken.remove(&key) {
                    step.released.insert(key.clone());
                }
                step.named_anew.remove(&key);
            }
        }
        step
    }

    /// Number of registered pods.
    pub(super) fn pods(&self) -> usize {
        self.pods.len()
    }
}

#[cfg(test)]
#[path = "../../../tests/support/seeded.rs"]
mod seeded;

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name).unwrap()
    }

    fn keys(names: &[&str]) -> BTreeSet<ObjectKey> {
        names.iter().map(|name| key(name)).collect()
    }

    #[test]
    fn an_update_takes_new_references_releases_old_ones_and_keeps_the_rest() {
        let mut registry = Registry::default();
        registry.apply([("u1".into(), Some(keys(&["stays", "goes"])))]);
        let step = registry.apply([("u1".into(), Some(keys(&["stays", "comes"])))]);
        assert_eq!(
            step,
            Transition { taken: keys(&["comes"]), named_anew: keys(&["comes"]), released: keys(&["goes"]) }
        );
    }

    #[test]
    fn an_object_passed_between_pods_in_one_step_is_not_released_in_any_order() {
        for swap in [false, true] {
            let mut registry = Registry::default();
            registry.apply([("old".into(), Some(keys(&["shared"])))]);
            let mut both: [Registration; 2] = [("old".into(), None), ("new".into(), Some(keys(&["shared"])))];
            if swap {
                both.reverse();
            }
            let step = registry.apply(both);
            assert_eq!((step.taken, step.released), (keys(&[]), keys(&[])));
            assert_eq!(step.named_anew, keys(&["shared"]));
        }
    }

    #[test]
    fn unregistering_twice_or_an_unknown_pod_does_nothing() {
        let mut registry = Registry::default();
        registry.apply([("u1".into(), Some(keys(&["a"]))), ("u2".into(), Some(keys(&["a"])))]);
        assert_eq!(registry.apply([("u1".into(), None)]), Transition::default());
        assert_eq!(registry.apply([("u1".into(), None), ("u3".into(), None)]), Transition::default());
        assert_eq!(registry.apply([("u2".into(), None)]).released, keys(&["a"]));
        assert_eq!((registry.pods(), registry.references.len()), (0, 0));
    }

    proptest! {
        #![proptest_config(seeded::seeded(256))]

        #[test]
        fn after_any_history_an_object_is_referenced_by_exactly_the_pods_that_name_it(
            steps in vec(vec((0_u8..6, proptest::option::of(btree_set(0_u8..6, 0..4))), 1..4), 1..60),
        ) {
            let mut registry = Registry::default();
            let mut model: HashMap<PodUid, BTreeSet<ObjectKey>> = HashMap::new();
            let mut referenced = BTreeSet::new();
            for step in steps {
                let step: Vec<Registration> = step.into_iter().map(|(pod, names)| {
                    let names = names.map(|names| names.iter().map(|name| key(&format!("s{name}"))).collect());
                    (PodUid::from(&*format!("u{pod}")), names)
                }).collect();
                for (uid, names) in step.clone() {
                    match names {
                        Some(names) => model.insert(uid, names),
                        None => model.remove(&uid),
                    };
                }
                let transition = registry.apply(step);
                let now: BTreeSet<_> = model.values().flatten().cloned().collect();
                prop_assert_eq!(&transition.taken, &(&now - &referenced));
                prop_assert_eq!(&transition.released, &(&referenced - &now));
                prop_assert!(transition.named_anew.is_superset(&transition.taken));
                prop_assert!(now.is_superset(&transition.named_anew));
                for (key, pods) in &registry.references {
                    let naming = model.iter().filter(|(_, names)| names.contains(key)).map(|(uid, _)| uid.clone());
                    prop_assert_eq!(pods, &naming.collect::<HashSet<_>>());
                }
                prop_assert_eq!(registry.references.len(), now.len());
                referenced = now;
            }
        }
    }
}
