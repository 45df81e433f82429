//! A lookup allocates nothing, hit or miss, with any handle, unless its result is a UID in an unusual
//! spelling. Readers never free what the writer replaced.
//!
//! Allocations are counted per thread, and each test runs on its own thread.

#[path = "support/lookups.rs"]
mod lookups;
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use lookups::{
    CONTAINER, Given, LOOKUPS, MIRROR, SHARED, UNUSUAL, UNUSUAL_MIRROR, UNUSUAL_STATIC, UUID, fill, keys,
};
use pod_index::identity::{ContainerId, Identity};
use pod_index::{Holder, Life, Moment, Operation, Options, PodKeys, PodMeta, Snapshot, Time};
use support::{TestPod, guarded};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static FREES: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded to the system's allocator; the counters neither allocate nor drop.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        FREES.set(FREES.get() + 1);
        // SAFETY: the caller keeps the contract of `dealloc`, and `alloc` above used the same allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations and frees of `work` on this thread.
fn counted<R>(work: impl FnOnce() -> R) -> (u64, u64) {
    let before = (ALLOCATIONS.get(), FREES.get());
    black_box(work());
    (ALLOCATIONS.get() - before.0, FREES.get() - before.1)
}

#[test]
fn reads_allocate_nothing_and_readers_free_nothing() {
    // Large enough for tables of several levels.
    let (mut writer, reader) = pod_index::new::<TestPod>();
    fill(&mut writer, 20_000, vec![]);
    let (mut cached, kept, given) = (reader.cached(), reader.snapshot(), Given::new());
    // The first load of a thread sets up arc-swap's slots for it.
    drop(reader.load());
    for (name, lookup) in LOOKUPS {
        assert_eq!(counted(|| assert!(lookup(cached.load(), &given))), (0, 0), "cached, {name}");
        assert_eq!(counted(|| assert!(lookup(&reader.load(), &given))), (0, 0), "load, {name}");
        assert_eq!(counted(|| assert!(lookup(&kept, &given))), (0, 0), "{name}");
    }
    for (number, key) in keys().enumerate() {
        let found = cached.load().get(key).is_some();
        assert_eq!(counted(|| assert_eq!(cached.get(key).is_some(), found)), (0, 0), "cached, key {number}");
        assert_eq!(counted(|| assert_eq!(reader.pod(key).is_some(), found)), (0, 0), "to keep, key {number}");
    }
    assert_eq!(
        counted(|| assert_eq!(kept.pods_by_custom_key(SHARED, b"all").count(), 2)),
        (0, 0),
        "pods by key"
    );
    assert_eq!(counted(|| kept.pod_to_mirror_uids().count()), (0, 0), "pairs of UIDs");
    assert_eq!(counted(|| kept.mirror_to_pod_uids().count()), (0, 0), "pairs of UIDs");
    assert_eq!(counted(|| cached.refresh()), (0, 0), "refresh");
    assert_eq!(counted(|| drop(reader.snapshot())), (0, 0), "keeping and dropping a snapshot");
    drop(kept);

    // Each kind of handle is held across a replacement of 100,000 pods and dropped last. The test drops its
    // own references first, so that only the old snapshot keeps the pods alive.
    fill(&mut writer, 100_000, vec![]);
    cached.refresh();
    let (guard, kept) = (reader.load(), reader.snapshot());
    fill(&mut writer, 100_000, vec![]);
    assert!(
        guard.pod_by_uid(UUID).is_some() && kept.pod_by_uid(UUID).is_some(),
        "the old state is still whole"
    );
    assert_eq!(counted(|| drop(guard)), (0, 0), "dropping a guard");
    assert_eq!(counted(|| drop(kept)), (0, 0), "dropping a kept snapshot");
    assert_eq!(counted(|| cached.refresh()), (0, 0), "a cached reader that moves on");

    // The writer frees them: some three allocations per pod.
    assert!(writer.retired_snapshots() > 0);
    let (_, frees) = counted(|| writer.reclaim());
    assert!(frees > 300_000, "{frees} frees");
    assert_eq!(writer.retired_snapshots(), 0);
}

/// The complete exception: a result that is a UID in an unusual spelling is copied once. A static pod's UID
/// already has a copy, which is shared.
#[test]
fn a_uid_in_an_unusual_spelling_is_copied_when_it_is_the_result() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let pair = vec![
        TestPod::fixed(UNUSUAL_STATIC, "odd_kube-system"),
        TestPod::mirror(UNUSUAL_MIRROR, "odd_kube-system", UNUSUAL_STATIC),
    ];
    fill(&mut writer, 100, pair);
    let snapshot = reader.snapshot();
    for uid in [UNUSUAL, UNUSUAL_STATIC, "unusual-and-nobodys"] {
        assert_eq!(counted(|| snapshot.translate_pod_uid(uid)), (1, 1), "{uid} stays");
    }
    assert_eq!(snapshot.translate_pod_uid(UNUSUAL_MIRROR), UNUSUAL_STATIC);
    assert_eq!(counted(|| snapshot.translate_pod_uid(UNUSUAL_MIRROR)), (0, 0), "shared");

    assert_eq!(snapshot.pod_uid_of_mirror(UNUSUAL_MIRROR), Some(UNUSUAL_STATIC.into()));
    assert_eq!(counted(|| snapshot.pod_uid_of_mirror(UNUSUAL_MIRROR)), (0, 0), "shared");
    assert_eq!(counted(|| snapshot.mirror_uid_of_pod(UNUSUAL_STATIC)), (1, 1), "the mirror's UID");
}

/// The lookups among the removed pods.
fn removed_lookups(snapshot: &Snapshot<TestPod>) {
    let removed = snapshot.removed();
    for key in keys() {
        black_box(removed.get(key));
    }
    for key in ["all", "none"] {
        black_box(removed.claimants((SHARED, key.as_bytes())).count());
    }
    black_box(removed.iter().count());
    for text in [CONTAINER, UUID, MIRROR, UNUSUAL, "10.0.0.7", "shop/web", "4711"] {
        black_box(Identity::parse(text).is_ok_and(|identity| identity.resolve(snapshot).is_some()));
    }
}

#[test]
fn reads_of_removed_pods_allocate_nothing_and_readers_free_none_of_them() {
    let options = Options::new().keep_removed(Duration::from_secs(60), 30_000);
    let (mut writer, reader) = pod_index::with_options(options);
    fill(&mut writer, 20_000, vec![]);
    assert!(writer.set_pods([TestPod::plain("other", "other")]).refused.is_empty());
    let snapshot = reader.snapshot();
    assert!(
        snapshot.removed().len() > 20_000
            && snapshot.removed().get(CONTAINER.parse::<ContainerId>().expect("64 digits")).is_some()
    );
    let mut cached = reader.cached();
    drop(reader.load());
    assert_eq!(counted(|| removed_lookups(&snapshot)), (0, 0));
    assert_eq!(counted(|| removed_lookups(cached.load())), (0, 0));
    let deadline = writer.next_deadline().expect("pods are kept");
    let later = Moment::new(deadline + Duration::from_secs(60), Time::now());
    assert!(writer.advance(later) > 20_000);
    assert_eq!(counted(|| cached.refresh()), (0, 0), "a cached reader that moves on");
    assert_eq!(counted(|| drop(snapshot)), (0, 0), "dropping a kept snapshot");
    let (_, frees) = counted(|| writer.reclaim());
    assert!(frees > 60_000, "{frees} frees");
}

/// Shares a custom key with all others, and has an IP of its own.
struct Timed(u8, String);

impl PodMeta for Timed {
    fn uid(&self) -> &str {
        &self.1
    }
    fn name(&self) -> &str {
        &self.1
    }
    fn namespace(&self) -> &'static str {
        "default"
    }
    fn annotation(&self, _: &str) -> Option<&str> {
        None
    }
    fn keys(&self, keys: &mut PodKeys<'_>) {
        keys.ip(IpAddr::from([10, 0, 0, self.0]));
        keys.custom_key(SHARED, "all");
    }
    fn life(&self) -> Life {
        Life { ip_by: Some(Time::from_seconds(1)), ..Life::default() }
    }
}

/// So many pods that the claims to the shared key are in several nodes of an ordered set.
#[test]
fn a_lookup_of_an_ip_at_a_time_allocates_nothing_although_pods_share_other_keys() {
    let options = Options::new().keep_removed(Duration::from_secs(60), 100).keep_times(true);
    let (mut writer, reader) = pod_index::with_options(options);
    let pods = (1..=100).map(|n| Timed(n, format!("u{n}")).into()).collect();
    let (seconds, now) = (Time::from_seconds, Instant::now());
    let moment = Moment::new(now, seconds(1000)).covering(seconds(0), seconds(1000));
    assert!(writer.apply_at(moment, [Operation::Set(pods)]).refused.is_empty());
    let (snapshot, ip) = (reader.snapshot(), IpAddr::from([10, 0, 0, 7]));
    let lookup = || {
        let at = snapshot.at(Time::from_seconds(500));
        assert!(matches!(at.get(ip), Holder::Pod(found) if found.pod.0 == 7));
        assert!(!snapshot.is_contested(ip));
    };
    assert_eq!(counted(lookup), (0, 0));
    assert!(snapshot.is_contested((SHARED, &b"all"[..])));
}

#[test]
fn reading_an_identity_allocates_nothing() {
    let id = "3e5f0b1c".repeat(8);
    let escaped = UUID.replace('-', "_");
    for text in [
        format!("/kubepods.slice/kubepods-pod{escaped}.slice/cri-containerd-{id}.scope/init.scope (deleted)"),
        format!("12:cpuset:/user.slice\n1:name=systemd:/\n0::/kubepods/pod{UUID}/{id}\n"),
        format!("kubepods-pod{escaped}.slice:cri-containerd:{id}"),
        format!("/var/log/pods/shop_web_{UUID}/c/0.log.20261122-065442.gz"),
        format!("/var/log/containers/web_shop_c-{id}.log"),
        format!("containerd://{id}"),
        format!("crio-{id}.scope"),
        UUID.to_owned(),
        UNUSUAL.to_owned(),
        "10.0.0.7".to_owned(),
        "4711".to_owned(),
        "shop/web".to_owned(),
        "web_shop".to_owned(),
        "/system.slice".to_owned(),
        "no such thing".to_owned(),
        "x".repeat(1 << 20),
    ] {
        assert_eq!(counted(|| Identity::parse(&text).is_ok()), (0, 0), "{text:.80}");
        if let Ok(Identity::Cgroup(cgroup)) = Identity::parse(&text) {
            assert_eq!(cgroup.pod_uid.expect("a UID"), UUID);
        }
    }
}

#[test]
fn after_the_writer_is_dropped_only_the_last_handle_frees_memory() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    fill(&mut writer, 1_000, vec![]);
    let guard = reader.load();
    fill(&mut writer, 1_000, vec![]);
    drop(writer);
    assert_eq!(counted(|| drop(guard)), (0, 0), "the old snapshot waits for the last handle");
    let (_, frees) = counted(|| drop(reader));
    assert!(frees > 6_000, "{frees} frees");
}

/// Panics when it is dropped.
struct Refused;

impl Drop for Refused {
    fn drop(&mut self) {
        // Without the panic hook's output.
        resume_unwind(Box::new(()));
    }
}

#[test]
fn a_refused_pod_whose_drop_panics_leaks_no_error() {
    let (mut writer, _reader) = pod_index::new();
    let mut refuse = || {
        let pod = guarded("", Refused);
        assert!(catch_unwind(AssertUnwindSafe(|| writer.upsert_pod(pod).is_err())).is_err());
    };
    // What the thread and the writer keep.
    refuse();
    let (allocations, frees) = counted(refuse);
    assert_eq!(allocations, frees);
}
