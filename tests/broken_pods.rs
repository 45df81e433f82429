//! Pods that violate the contract of `PodMeta`: their results change while they are in the index, or their
//! methods panic.

mod support;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pod_index::{CONFIG_MIRROR_ANNOTATION, CustomKeyKind, Operation, Options, PodKeys, PodManager, PodMeta};
use support::{Named, TestPod};

/// A pod whose UID or name can change.
struct Fickle {
    uid: [&'static str; 2],
    name: [&'static str; 2],
    turned: AtomicBool,
}

impl Fickle {
    fn new(uid: [&'static str; 2], name: [&'static str; 2]) -> Arc<Self> {
        Arc::new(Self { uid, name, turned: AtomicBool::new(false) })
    }

    fn steady(uid: &'static str, name: &'static str) -> Arc<Self> {
        Self::new([uid; 2], [name; 2])
    }

    fn now(&self) -> usize {
        usize::from(self.turned.load(Ordering::Relaxed))
    }
}

impl PodMeta for Fickle {
    fn uid(&self) -> &str {
        self.uid[self.now()]
    }
    fn name(&self) -> &str {
        self.name[self.now()]
    }
    fn namespace(&self) -> &'static str {
        "default"
    }
    fn annotation(&self, _: &str) -> Option<&str> {
        None
    }
}

const U1: &str = "11111111-1111-1111-1111-111111111111";
const U2: &str = "22222222-2222-2222-2222-222222222222";
const U3: &str = "33333333-3333-3333-3333-333333333333";

#[test]
fn a_pod_whose_uid_changes_affects_no_other_pod() {
    let (mut writer, reader) = pod_index::new();
    let (fickle, other, third) =
        (Fickle::new([U1, U2], ["a"; 2]), Fickle::steady(U2, "b"), Fickle::steady(U3, "c"));
    let _ = writer.apply([Operation::Upsert(Arc::clone(&fickle)), Operation::Upsert(Arc::clone(&other))]);
    fickle.turned.store(true, Ordering::Relaxed);

    assert!(Arc::ptr_eq(&writer.remove_pod_by_uid(U1).expect("filed under its first UID"), &fickle));
    assert!(Arc::ptr_eq(reader.load().pod_by_uid(U2).expect("still there"), &other));
    writer.upsert_pod(third).expect("a good pod");
    assert!(reader.load().pod_by_uid(U1).is_none(), "no other pod inherits a UID");
    assert!(writer.remove_pod_by_uid(U2).is_some());
    assert!(writer.remove_pod_by_uid(U3).is_some());
    assert!(reader.load().pods().len() == 0);
}

#[test]
fn a_pod_whose_name_changes_affects_no_other_pods_name() {
    let (mut writer, reader) = pod_index::new();
    let (fickle, other) = (Fickle::new([U1; 2], ["a", "b"]), Fickle::steady(U2, "b"));
    let _ = writer.apply([Operation::Upsert(Arc::clone(&fickle)), Operation::Upsert(Arc::clone(&other))]);
    fickle.turned.store(true, Ordering::Relaxed);

    assert!(writer.remove_pod_by_uid(U1).is_some());
    assert!(Arc::ptr_eq(reader.load().pod_by_full_name("b_default").expect("still there"), &other));
    writer.upsert_pod(Fickle::steady(U3, "c")).expect("a good pod");
}

#[test]
fn a_removed_pod_whose_uid_changes_is_forgotten_in_its_turn() {
    let options = Options::new().keep_removed(Duration::from_secs(60), 2);
    let (mut writer, reader) = pod_index::with_options::<Fickle>(options);
    // The index compares an unusual UID with the pod's own.
    let pod = Fickle::new(["an unusual UID", "another"], ["a"; 2]);
    writer.upsert_pod(Arc::clone(&pod)).expect("a good pod");
    writer.remove_pod_by_uid("an unusual UID").expect("a known pod");
    pod.turned.store(true, Ordering::Relaxed);
    for uid in [U1, U2, U3] {
        writer.upsert_pod(Fickle::steady(uid, "b")).expect("a good pod");
        writer.remove_pod_by_uid(uid).expect("a known pod");
        assert!(reader.load().removed().len() <= 2);
    }
}

type Wanderer = Named<Box<dyn Fn(&mut PodKeys<'_>) + Send + Sync>>;

/// A pod whose keys change once this is set.
fn wanderer(uid: &'static str, moved: &Arc<AtomicBool>) -> Arc<Wanderer> {
    let moved = Arc::clone(moved);
    let keys = move |keys: &mut PodKeys<'_>| {
        let moved = moved.load(Ordering::Relaxed);
        keys.custom_key(CustomKeyKind(1), if moved { "b" } else { "a" });
        keys.created(i64::from(moved));
    };
    Arc::new(Named(uid, Box::new(keys)))
}

#[test]
fn a_pod_whose_keys_change_takes_no_other_pods_key_with_it() {
    for removed in [U1, U2] {
        let (mut writer, reader) = pod_index::new::<Wanderer>();
        let moved = Arc::new(AtomicBool::new(false));
        let stays = Arc::default();
        let pods = [(U1, &stays), (U2, &moved), (U3, &stays)].map(|(uid, moved)| wanderer(uid, moved));
        assert!(writer.set_pods(pods.clone()).refused.is_empty());
        moved.store(true, Ordering::Relaxed);
        writer.remove_pod_by_uid(removed).expect("a known pod");
        let snapshot = reader.load();
        assert!(snapshot.pods_by_custom_key(CustomKeyKind(1), b"a").any(|pod| pod.0 == U3), "{removed}");
        let _ = writer.set_pods([Arc::clone(&pods[2])]);
        assert_eq!(reader.load().pods_by_custom_key(CustomKeyKind(1), b"a").count(), 1);
        assert_eq!(reader.load().key_counts().custom_keys, 1);
    }
}

thread_local! {
    /// Number of calls that a [`Trap`] answers before it panics.
    static ANSWERS: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// A pod whose methods panic after a number of calls.
struct Trap(Arc<TestPod>);

impl Trap {
    fn spring() {
        let left = ANSWERS.get();
        if left == 0 {
            // Without the panic hook's output.
            resume_unwind(Box::new("sprung"));
        }
        ANSWERS.set(left - 1);
    }
}

impl PodMeta for Trap {
    fn uid(&self) -> &str {
        Self::spring();
        self.0.uid()
    }
    fn name(&self) -> &str {
        Self::spring();
        self.0.name()
    }
    fn namespace(&self) -> &str {
        Self::spring();
        self.0.namespace()
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        Self::spring();
        self.0.annotation(key)
    }
    fn ephemeral_container_count(&self) -> usize {
        Self::spring();
        self.0.ephemeral_container_count()
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        Self::spring();
        keys.ip([10, 0, 0, 7].into());
        keys.custom_key(CustomKeyKind(1), "of all");
        Self::spring();
        keys.created(self.0.ephemeral.try_into().unwrap_or_default());
    }
}

fn uids(manager: &PodManager<Trap>) -> Vec<String> {
    let snapshot = manager.load();
    support::invariants::check(&snapshot);
    let all = snapshot.pods().chain(snapshot.mirror_pods());
    let mut all: Vec<_> = all.map(|pod| pod.uid().to_owned()).collect();
    all.sort_unstable();
    let of_all = || snapshot.pods_by_custom_key(CustomKeyKind(1), b"of all");
    assert!(of_all().next().is_none_or(|first| {
        snapshot.pod_by_ip([10, 0, 0, 7].into()).is_some_and(|pod| Arc::ptr_eq(pod, first))
    }));
    assert_eq!(of_all().count(), snapshot.pods().len());
    all
}

/// Three pods that contend for a name.
fn contended() -> Vec<Arc<TestPod>> {
    vec![
        TestPod::mirror("m", "web", "s"),
        TestPod::plain("z", "web").with_ephemeral(2),
        TestPod::fixed("s", "web"),
    ]
}

#[test]
fn a_panic_at_any_point_of_a_write_leaves_the_index_consistent_and_writable() {
    type Case = (fn() -> Vec<Arc<TestPod>>, fn(&PodManager<Trap>));
    let cases: [Case; 5] = [
        (contended, |manager| drop(manager.add_pod(Trap(TestPod::fixed("s2", "web"))))),
        (contended, |manager| drop(manager.update_pod(Trap(TestPod::fixed("s", "other"))))),
        (contended, |manager| drop(manager.write(|writer| writer.remove_pod_by_uid("s")))),
        (contended, |manager| drop(manager.add_pod(Trap(TestPod::plain("gone", "web"))))),
        (contended, |manager| {
            let _ =
                manager.set_pods([TestPod::mirror("m", "web", "s"), TestPod::plain("p", "web")].map(Trap));
        }),
    ];
    for (stored, write) in cases {
        for answers in 0.. {
            // One removed pod, which the next ones push out.
            let options = Options::new().keep_removed(Duration::from_secs(60), 1);
            let manager = PodManager::with_options(options);
            manager.add_pod(Trap(TestPod::plain("gone", "web"))).expect("a good pod");
            manager.write(|writer| writer.remove_pod_by_uid("gone")).expect("a known pod");
            for pod in stored() {
                manager.add_pod(Trap(pod)).expect("a good pod");
            }
            let before = manager.load().generation();

            ANSWERS.set(answers);
            let finished = catch_unwind(AssertUnwindSafe(|| write(&manager))).is_ok();
            ANSWERS.set(usize::MAX);

            if finished {
                assert_eq!(manager.load().generation(), before + 1);
                assert!(answers > 5, "the trap was never sprung");
                break;
            }
            assert_eq!(manager.load().generation(), before, "nothing half done is published");
            assert_eq!(uids(&manager), ["m", "s", "z"]);
            assert_eq!(manager.load().removed().get(("default", "web")).expect("kept").pod.uid(), "gone");
            write(&manager);
            assert_eq!(manager.load().generation(), before + 1);
            uids(&manager);
        }
    }
}

/// A pod that says its UID so many times, and then another one.
struct Liar {
    uid: &'static str,
    truths: AtomicUsize,
    lie: &'static str,
    name: &'static str,
    is_mirror: bool,
}

impl Liar {
    fn honest(uid: &'static str, name: &'static str, is_mirror: bool) -> Arc<Self> {
        Arc::new(Self { uid, truths: AtomicUsize::new(usize::MAX), lie: "", name, is_mirror })
    }
}

impl PodMeta for Liar {
    fn uid(&self) -> &str {
        let left = self.truths.load(Ordering::Relaxed);
        self.truths.store(left.saturating_sub(1), Ordering::Relaxed);
        if left > 0 { self.uid } else { self.lie }
    }
    fn name(&self) -> &str {
        self.name
    }
    fn namespace(&self) -> &'static str {
        "default"
    }
    fn annotation(&self, key: &str) -> Option<&str> {
        (self.is_mirror && key == CONFIG_MIRROR_ANNOTATION).then_some("")
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        keys.ip([10, 0, 0, 7].into());
    }
}

/// The spelling is unusual, so the index compares it with what the pod says.
#[test]
fn a_pod_that_answers_with_two_uids_takes_no_other_pod_with_it() {
    const UID: &str = "an unusual UID";
    for truths in 0..16 {
        for keeping in [0, 10] {
            let options = Options::new().keep_removed(Duration::from_secs(60), keeping);
            let (mut writer, reader) = pod_index::with_options::<Liar>(options);
            let others = [("other", "b", false), ("u3", "c", true), ("u4", "a", false)];
            let others = others.map(|(uid, name, is_mirror)| Liar::honest(uid, name, is_mirror));
            for other in &others {
                writer.upsert_pod(Arc::clone(other)).expect("a good pod");
            }
            let (uid, lie, name) = (UID, "other", "a");
            let truths_at_first = AtomicUsize::new(usize::MAX);
            let liar = Arc::new(Liar { uid, truths: truths_at_first, lie, name, is_mirror: false });
            writer.upsert_pod(Arc::clone(&liar)).expect("a good pod");
            // While it lies, its UID seems to be free: for a mirror pod.
            liar.truths.store(0, Ordering::Relaxed);
            let mirror = Liar::honest(UID, "m", true);
            writer.upsert_pod(Arc::clone(&mirror)).expect("a good pod");
            liar.truths.store(truths, Ordering::Relaxed);
            let removed = writer.remove_pod_by_uid(UID);
            liar.truths.store(0, Ordering::Relaxed);

            let snapshot = reader.load();
            let is_there = |pod: &Arc<Liar>| {
                let all = snapshot.pods().chain(snapshot.mirror_pods());
                all.filter(|there| Arc::ptr_eq(there, pod)).count() == 1
            };
            let removed = removed.expect("a pod has the UID");
            assert!(Arc::ptr_eq(&removed, &liar) || Arc::ptr_eq(&removed, &mirror), "{truths}");
            assert_eq!(is_there(&mirror), !Arc::ptr_eq(&removed, &mirror), "{truths}");
            assert!(others.iter().all(is_there), "{truths}");
            for (other, by_name) in [(&others[0], "b"), (&others[2], "a")] {
                let found = snapshot.pod_by_name("default", by_name).expect("a pod");
                // As long as the liar is there, it holds the name that it was given last.
                let is_liars = by_name == liar.name && !Arc::ptr_eq(&removed, &liar);
                assert!(Arc::ptr_eq(found, if is_liars { &liar } else { other }), "{truths}");
                assert!(Arc::ptr_eq(snapshot.pod_by_uid(other.uid).expect("an honest pod"), other));
            }
            let claimants = snapshot.claimants(std::net::IpAddr::from([10, 0, 0, 7]));
            assert!(claimants.filter(|found| !Arc::ptr_eq(found.pod, &liar)).count() == 2, "{truths}");
        }
    }
}

/// Panics when it is dropped, with a payload that panics when it is dropped.
struct Bomb(&'static str);

struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        resume_unwind(Box::new(()));
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        resume_unwind(Box::new(Payload));
    }
}

impl PodMeta for Bomb {
    fn uid(&self) -> &str {
        self.0
    }
    fn name(&self) -> &str {
        self.0
    }
    fn namespace(&self) -> &'static str {
        "default"
    }
    fn annotation(&self, _: &str) -> Option<&str> {
        None
    }
}

/// Runs it, and forgets the payload of its panic.
fn panics(run: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(run)).map_err(std::mem::forget).is_err()
}

/// Otherwise the second panic ends the process.
#[test]
fn two_pods_whose_payloads_panic_in_their_drop_do_not_end_the_process() {
    let (mut writer, reader) = pod_index::new::<Bomb>();
    assert!(writer.set_pods([U1, U2, U3].map(Bomb)).refused.is_empty());
    let mut has_panicked = panics(|| drop(writer.set_pods([Bomb(U1)])));
    has_panicked |= panics(|| _ = writer.reclaim());
    assert!(has_panicked);
    assert_eq!(reader.load().pods().len(), 1);
    // Two that are refused.
    assert!(panics(|| drop(writer.set_pods(["", ""].map(Bomb)))));
    // The writer is dropped while another panic goes on, and with pods of its own to free.
    assert!(panics(move || {
        let held = reader.snapshot();
        let _ = panics(|| drop(writer.set_pods([U2, U3].map(Bomb))));
        drop((held, reader));
        let _writer = writer;
        resume_unwind(Box::new(()));
    }));
}
