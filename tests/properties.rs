//! Arbitrary histories, including hostile ones, compared with models: every read of every state.
//!
//! More cases: `PROPTEST_CASES=100000 cargo test --release --test index properties::`. A failing test prints how to
//! repeat its cases.

// Not in `support`, which is also used without proptest.
#[path = "support/seeded.rs"]
mod seeded;
mod support;

use std::cell::Cell;
use std::sync::Arc;

use pod_index::is_mirror_pod;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use seeded::seeded;
use support::TestPod;
use support::history::{Kind, NAMES, NAMESPACES, Replayed, Run, Spec, Step, UIDS, replay, universe};
use support::keys::COMBINATIONS;
use support::kubelet::Kubelet;
use support::model::Model;
use support::observation::Observation;

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        3 => Just(Kind::File),
        3 => Just(Kind::Mirror),
        2 => Just(Kind::Bare),
        1 => select(vec![Kind::Api, Kind::Http, Kind::EmptyMirror, Kind::StaticMirror]),
    ]
}

/// Mostly valid names, and few, so that they collide.
fn specs() -> impl Strategy<Value = Spec> {
    let uid = prop_oneof![8 => 0..4usize, 6 => 4..UIDS.len() - 1, 1 => 0..UIDS.len()];
    let name = prop_oneof![20 => 0..2usize, 4 => Just(2), 1 => 0..NAMES.len()];
    let namespace = prop_oneof![20 => Just(0usize), 4 => Just(1), 1 => 0..NAMESPACES.len()];
    let specs = (uid, name, namespace, kinds(), 0..3usize, 0..COMBINATIONS);
    specs.prop_map(|(uid, name, namespace, kind, ephemeral, keys)| Spec {
        uid,
        name,
        namespace,
        kind,
        ephemeral,
        keys,
    })
}

fn single_steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => specs().prop_map(Step::Upsert),
        2 => (0..16usize).prop_map(Step::Again),
        8 => (0..UIDS.len()).prop_map(Step::RemoveUid),
        2 => specs().prop_map(Step::RemovePod),
        2 => (0..16usize, 0..16usize).prop_map(|(a, b)| Step::SwapNames(a, b)),
        1 => vec(specs(), 0..8).prop_map(Step::Set),
        1 => (prop_oneof![Just(0), any::<u16>()], vec(specs(), 0..3)).prop_map(|(without, more)| Step::SetSome(without, more)),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => single_steps(),
        1 => vec(single_steps(), 0..8).prop_map(Step::Batch),
    ]
}

/// Runs `property` on 128 random histories. It returns the number of non-empty comparisons. Panics unless
/// their total reaches `floor` per case: a property that compares nothing always holds.
fn holds<S: Strategy>(histories: &S, floor: usize, property: impl Fn(S::Value) -> usize) {
    let config = seeded(128);
    let (cases, sum) = (config.cases as usize, Cell::new(0));
    let result = TestRunner::new(config).run(histories, |history| {
        sum.set(sum.get() + property(history));
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    let sum = sum.get();
    println!("{sum} compared in {cases} cases");
    // By chance, a few cases may be small.
    assert!(
        sum >= floor * cases || cases < 32,
        "{sum} were compared in {cases} cases, fewer than {floor} a case"
    );
}

/// For a follower that looks after each write, and for one that looks now and then.
#[test]
fn replaying_the_changes_always_gives_the_current_set() {
    holds(&vec((steps(), any::<bool>()), 1..100), 50, |history| {
        let mut run = Run::default();
        let (mut each, mut some) = (run.reader.changes(), run.reader.changes());
        let (mut known_to_each, mut known_to_some) = (Replayed::new(), Replayed::new());
        let mut replayed = 0;
        for (number, (step, looks)) in history.iter().enumerate() {
            run.step(step);
            if let Ok(step) = each.try_next() {
                replayed += replay(&mut known_to_each, &step.changes(), step.after());
            }
            let last = number + 1 == history.len();
            if (*looks || last)
                && let Ok(step) = some.try_next()
            {
                replayed += replay(&mut known_to_some, &step.changes(), step.after());
            }
        }
        assert_eq!(known_to_each, known_to_some);
        replayed
    });
}

proptest! {
    #![proptest_config(seeded(128))]

    /// Batches and sets are among the steps: the model does their parts one by one. In half of the histories snapshots are kept,
    /// and stay as they were.
    #[test]
    fn every_read_after_every_step_is_what_the_model_says(history in vec((steps(), any::<bool>()), 1..100), keeps: bool) {
        let mut run = Run::default();
        let mut kept = vec![];
        run.compare();
        for (step, keep) in &history {
            run.step(step);
            let observation = run.compare();
            if keeps && *keep {
                kept.push((run.reader.snapshot(), observation));
            }
        }
        for (snapshot, observation) in &kept {
            prop_assert_eq!(&Observation::of(snapshot, &run.universe), observation, "a snapshot stays as it was");
        }
    }
}

#[test]
fn the_changes_between_any_two_snapshots_lead_from_one_to_the_other() {
    holds(&vec(steps(), 1..40), 100, |history| {
        let mut run = Run::default();
        let mut kept = vec![run.reader.snapshot()];
        for step in &history {
            run.step(step);
            kept.push(run.reader.snapshot());
        }
        let last = run.reader.snapshot();
        let next = kept.windows(2).map(|pair| Run::compare_changes(&pair[0], &pair[1])).sum::<usize>();
        let far = kept
            .iter()
            .map(|snapshot| Run::compare_changes(snapshot, &last) + Run::compare_changes(&last, snapshot));
        next + far.sum::<usize>()
    });
}

/// A well-formed history for the kubelet's manager: a UID keeps its full name and kind, a full name has at
/// most one live pod and one live mirror, and only existing pods are removed.
fn well_formed_steps() -> impl Strategy<Value = WellFormed> {
    let who = (0..3usize, 0..2usize, any::<bool>(), 0..3usize);
    prop_oneof![
        3 => (who.clone(), 0..3usize).prop_map(|(who, ephemeral)| WellFormed::Upsert(who, ephemeral)),
        2 => (0..16usize).prop_map(WellFormed::Remove),
        1 => vec((who, 0..3usize), 0..6).prop_map(WellFormed::Set),
    ]
}

/// Name, kind, whether static, incarnation.
type Who = (usize, usize, bool, usize);

#[derive(Clone, Debug)]
enum WellFormed {
    Upsert(Who, usize),
    /// An index into the live pods.
    Remove(usize),
    Set(Vec<(Who, usize)>),
}

fn well_formed((name, kind, fixed, incarnation): Who, ephemeral: usize, version: u64) -> Arc<TestPod> {
    let (name, uid) = (NAMES[name], format!("{kind}-{fixed}-{name}-{incarnation}"));
    let pod = match (kind, fixed) {
        (0, true) => TestPod::fixed(&uid, name),
        (0, false) => TestPod::plain(&uid, name),
        _ => TestPod::mirror(&uid, name, "hash"),
    };
    Arc::new(TestPod { ephemeral, version, ..Arc::unwrap_or_clone(pod) })
}

/// Whether another live pod of the same kind has the full name.
fn is_contested<'a>(pod: &TestPod, mut live: impl Iterator<Item = &'a Arc<TestPod>>) -> bool {
    live.any(|other| {
        other.uid != pod.uid
            && other.name == pod.name
            && other.namespace == pod.namespace
            && is_mirror_pod(&**other) == is_mirror_pod(pod)
    })
}

#[test]
fn on_well_formed_histories_the_index_is_the_kubelets() {
    holds(&vec(well_formed_steps(), 1..100), 10, |history| {
        let (mut writer, reader) = pod_index::new::<TestPod>();
        let (mut kubelet, mut model) = (Kubelet::default(), Model::default());
        let mut universe = universe();
        for name in &NAMES[..3] {
            for kind in ["0-true", "0-false", "1-true", "1-false"] {
                universe.uids.extend((0..3).map(|incarnation| format!("{kind}-{name}-{incarnation}")));
            }
        }
        let mut compared = 0;
        for (step, version) in history.into_iter().zip(1..) {
            match step {
                WellFormed::Upsert(who, ephemeral) => {
                    let pod = well_formed(who, ephemeral, version);
                    if is_contested(&pod, model.live()) {
                        continue;
                    }
                    writer.upsert_pod(Arc::clone(&pod)).expect("a good pod");
                    kubelet.update_pod(&pod);
                    model.upsert(&pod);
                }
                WellFormed::Remove(which) => {
                    let Some(pod) = model.live().nth(which).cloned() else { continue };
                    writer.remove_pod(&pod).expect("a known pod");
                    kubelet.remove_pod(&pod);
                    model.remove(&pod.uid);
                }
                WellFormed::Set(pods) => {
                    let mut set: Vec<Arc<TestPod>> = Vec::new();
                    for (who, ephemeral) in pods {
                        let pod = well_formed(who, ephemeral, version);
                        if !is_contested(&pod, set.iter()) && !set.iter().any(|other| other.uid == pod.uid) {
                            set.push(pod);
                        }
                    }
                    let _ = writer.set_pods(set.clone());
                    kubelet.set_pods(&set);
                    model.set(&set);
                }
            }
            let observation = Observation::of(&reader.load(), &universe);
            assert_eq!(observation, kubelet.observe(&universe));
            assert_eq!(observation, model.observe(&universe));
            compared += observation.mirror_to_pod.len();
        }
        compared
    });
}
