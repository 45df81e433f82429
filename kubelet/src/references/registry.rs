//! Reference counts, by object and by pod UID. Pure: no client, no clock, no threads.

use std::collections::{BTreeSet, HashMap};

use pod_index::PodUid;

use crate::names::dns_subdomain;

/// The namespace and name of an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ObjectKey {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl ObjectKey {
    /// `None` if no object can have this namespace and name. Others are safe in a path and in a field selector without
    /// escaping.
    pub(super) fn new(namespace: &str, name: &str) -> Option<Self> {
        let is_name = |name| dns_subdomain(name).is_none();
        (is_name(namespace) && is_name(name)).then(|| Self { namespace: namespace.into(), name: name.into() })
    }
}

/// The registered pods and the objects that they name.
#[derive(Default)]
pub(super) struct Registry {
    /// What each registered pod names. Releasing uses this record, not the pod's current content.
    pods: HashMap<PodUid, BTreeSet<ObjectKey>>,
    /// The number of pods that name each object; never zero.
    references: HashMap<ObjectKey, usize>,
}

/// A pod and the objects it names from now on. `None`: unregister the pod.
pub(super) type Registration = (PodUid, Option<BTreeSet<ObjectKey>>);

/// The effect of a step on the objects.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Transition {
    /// Objects that no pod named before.
    pub(super) taken: BTreeSet<ObjectKey>,
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
            dropped.extend(self.pods.remove(&uid).into_iter().flatten());
            let Some(now) = now else { continue };
            for key in &now {
                let pods = self.references.entry(key.clone()).or_default();
                *pods += 1;
                if *pods == 1 {
                    step.taken.insert(key.clone());
                }
            }
            self.pods.insert(uid, now);
        }
        for key in dropped {
            let Some(pods) = self.references.get_mut(&key) else { continue };
            *pods -= 1;
            if *pods == 0 {
                self.references.remove(&key);
                // Taken and released in the same step: no effect.
                if !step.taken.remove(&key) {
                    step.released.insert(key);
                }
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
    fn only_valid_object_names_become_keys() {
        for good in ["a", "db-password", "ca.example.com", "1", &"a".repeat(253)] {
            assert!(ObjectKey::new("default", good).is_some(), "{good}");
        }
        let bad =
            ["", ".", "..", "../nodes", "a/b", "a?b", "a,b=c", "a b", "A", "a_b", "-a", "a-", "ä", "a\0"];
        for bad in bad.into_iter().chain([&*"a".repeat(254)]) {
            assert!(ObjectKey::new("default", bad).is_none(), "{bad}");
            assert!(ObjectKey::new(bad, "a").is_none(), "{bad}");
        }
    }

    #[test]
    fn an_update_takes_new_references_releases_old_ones_and_keeps_the_rest() {
        let mut registry = Registry::default();
        registry.apply([("u1".into(), Some(keys(&["stays", "goes"])))]);
        let step = registry.apply([("u1".into(), Some(keys(&["stays", "comes"])))]);
        assert_eq!(step, Transition { taken: keys(&["comes"]), released: keys(&["goes"]) });
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
            assert_eq!(step, Transition::default());
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
                for (key, count) in &registry.references {
                    prop_assert_eq!(*count, model.values().filter(|names| names.contains(key)).count());
                }
                prop_assert_eq!(registry.references.len(), now.len());
                referenced = now;
            }
        }
    }
}
