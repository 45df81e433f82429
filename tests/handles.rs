//! The handles: each gives the current snapshot's results; and their debug output.

mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use pod_index::{
    FoundBy, FullName, Holder, MirrorPodUid, Operation, Options, PodManager, PodUid, Reader, ResolvedPodUid,
    SimpleContainer, SimplePod, Snapshot, Time, UidRef, Upserted, Writer,
};
use support::TestPod;

/// A static pod with its mirror, a mirror without a pod, and an unrelated pod.
fn pods() -> [Arc<TestPod>; 4] {
    [
        TestPod::fixed("s", "web"),
        TestPod::mirror("m", "web", "s"),
        TestPod::mirror("orphan", "gone_kube-system", "x"),
        TestPod::plain("p", "db"),
    ]
}

fn index() -> (Writer<TestPod>, Reader<TestPod>) {
    let (mut writer, reader) = pod_index::new();
    assert_eq!(writer.set_pods(pods()).refused, []);
    (writer, reader)
}

fn same(answer: Option<&Arc<TestPod>>, wanted: Option<&Arc<TestPod>>) -> bool {
    match (answer, wanted) {
        (None, None) => true,
        (Some(answer), Some(wanted)) => Arc::ptr_eq(answer, wanted),
        _ => false,
    }
}

const UIDS: [&str; 6] = ["s", "m", "orphan", "p", "nobody", ""];
const NAMES: [(&str, &str); 4] =
    [("web", "default"), ("gone", "kube-system"), ("db", "default"), ("nobody", "default")];

#[test]
fn every_handle_gives_the_current_snapshots_results() {
    let (mut writer, reader) = index();
    let mut cached = reader.cached();
    for _ in 0..2 {
        let snapshot = reader.snapshot();
        assert_eq!(cached.load().generation(), snapshot.generation());
        for uid in UIDS {
            let wanted = snapshot.pod_by_uid(uid);
            assert!(same(reader.pod(uid).as_ref(), wanted), "{uid}");
            let found = cached.get(uid);
            assert!(found.as_ref().is_none_or(|found| found.by == FoundBy::Uid), "{uid}");
            assert!(same(found.map(|found| found.pod), wanted), "{uid}");
        }
        for (name, namespace) in NAMES {
            let wanted = snapshot.pod_by_name(namespace, name);
            assert!(same(reader.pod((namespace, name)).as_ref(), wanted), "{name}");
            let full_name = FullName::new(namespace, name).expect("a full name");
            let found = cached.get(&full_name);
            assert!(found.as_ref().is_none_or(|found| found.by == FoundBy::Name), "{name}");
            assert!(same(found.map(|found| found.pod), wanted), "{name}");
        }
        // Again, with another state.
        writer.remove_pod_by_uid("p");
        writer.upsert_pod(TestPod::plain("new", "db")).expect("a good pod");
    }
    assert!(cached.get("p").is_none() && cached.get("new").is_some());
    assert!(cached.get("m").is_none(), "a mirror pod is not found");
}

/// A cloned handle is independent, and so is the snapshot that it holds.
#[test]
fn a_refreshed_reader_releases_its_snapshot_and_its_clone_does_not() {
    let (mut writer, reader) = index();
    let mut cached = reader.cached();
    assert!(cached.load().pod_by_uid("p").is_some());
    let clone = cached.clone();
    writer.remove_pod_by_uid("p").expect("it is there");
    cached.refresh();
    assert_eq!(writer.reclaim(), 1, "the clone holds the old snapshot");
    drop(clone);
    assert_eq!(writer.reclaim(), 0, "no handle holds it");
}

#[test]
fn a_manager_behaves_like_a_writer_and_a_reader() {
    let (mut writer, reader) = index();
    let manager = PodManager::default();
    assert_eq!(manager.load().generation(), 0);
    assert_eq!(manager.set_pods(pods()).generation, 1);

    for uid in UIDS {
        assert_eq!(manager.pod_by_uid(uid), reader.pod(uid), "{uid}");
        assert_eq!(manager.translate_pod_uid(uid), reader.load().translate_pod_uid(uid));
    }
    for (name, namespace) in NAMES {
        let full_name = format!("{name}_{namespace}");
        let snapshot = reader.load();
        let wanted = snapshot.pod_by_full_name(&full_name).cloned();
        assert_eq!(manager.pod_by_full_name(&full_name), wanted);
        assert_eq!(manager.pod_by_name(namespace, name), wanted);
        let asks = TestPod::plain("who-asks", &full_name);
        assert_eq!(manager.pod_by_mirror_pod(&asks), wanted);
        assert_eq!(manager.mirror_pod_by_pod(&asks), snapshot.mirror_pod_by_pod(&asks).cloned());
    }

    let update = || TestPod::plain("p", "db").with_ephemeral(2);
    assert!(matches!(manager.update_pod(update()), Ok(Upserted::Replaced(old)) if old.ephemeral == 0));
    assert_eq!(manager.load().ephemeral_container_count(), 2);
    assert!(matches!(manager.add_pod(TestPod::plain("q", "queue")), Ok(Upserted::Added)));
    assert_eq!(
        manager.remove_pod(&TestPod::plain("q", "another")).map(|q| q.name.clone()),
        Some("queue".into())
    );
    let remove = || manager.write(|writer| writer.remove_pod_by_uid("p"));
    assert_eq!(remove().map(|p| p.ephemeral), Some(2));
    assert_eq!(remove(), None);
    let batch = [Operation::Upsert(update()), Operation::Remove("orphan".into())];
    let applied = manager.write(|writer| writer.apply(batch));
    assert_eq!((applied.generation, applied.published), (6, true));

    writer.remove_pod_by_uid("orphan").expect("it is there");
    let uids = |snapshot: &Snapshot<TestPod>| {
        let all = snapshot.pods().chain(snapshot.mirror_pods()).map(|pod| pod.uid.clone());
        all.collect::<HashSet<_>>()
    };
    assert_eq!(uids(&manager.load()), uids(&reader.load()));
    assert_eq!(uids(&manager.load()), uids(writer.current()));
}

#[test]
fn a_manager_reports_held_snapshots_and_frees_the_others() {
    let manager = PodManager::<TestPod>::new();
    let held: Vec<_> = (0..3)
        .map(|uid| {
            manager.add_pod(TestPod::plain(&format!("u{uid}"), &format!("n{uid}"))).expect("a good pod");
            manager.load()
        })
        .collect();
    let retired = || manager.clone().write(|writer| writer.retired_snapshots());
    assert_eq!(retired(), 2, "the third one is current");
    drop(held);
    assert_eq!(retired(), 2, "no publication has checked");
    assert_eq!(manager.write(Writer::reclaim), 0);
    assert_eq!(retired(), 0);
}

#[test]
fn every_view_can_be_iterated_and_has_a_length_if_known() {
    let (_writer, reader) = index();
    let snapshot = reader.load();
    assert_eq!((snapshot.pods().len(), snapshot.static_pods().count()), (2, 1));
    let mut pods = snapshot.pods();
    let another = pods.clone();
    pods.next().expect("the first");
    assert_eq!((pods.len(), another.len()), (1, 2));
    let mirrors = snapshot.mirror_pods();
    assert_eq!((mirrors.len(), mirrors.count()), (2, 2));
    let orphans: Vec<_> = snapshot.orphaned_mirror_pod_full_names().map(|name| name.to_string()).collect();
    assert_eq!(orphans, ["gone_kube-system"]);
    let pairs = snapshot.static_pods_with_mirrors();
    assert_eq!(pairs.clone().count(), 1);
    for one in pairs {
        assert_eq!((one.pod.uid.as_str(), one.mirror.expect("its mirror").uid.as_str()), ("s", "m"));
    }
    let pairs: Vec<_> =
        snapshot.mirror_to_pod_uids().map(|one| (one.mirror.to_string(), one.pod.to_string())).collect();
    assert_eq!(pairs, [("m".into(), "s".into())]);
}

/// UIDs of all types: checked at compile time, with the same results.
#[test]
#[expect(
    clippy::needless_borrows_for_generic_args,
    clippy::unnecessary_to_owned,
    reason = "each form must compile"
)]
fn lookups_take_uids_and_full_names_of_all_types() {
    let (_writer, reader) = index();
    let snapshot = reader.load();
    let found = |pod: Option<&Arc<TestPod>>| assert_eq!(pod.expect("it is there").uid, "p");
    let (uid, full_name) = (PodUid::from("p"), FullName::new("default", "db").expect("a full name"));
    found(snapshot.pod_by_uid("p"));
    found(snapshot.pod_by_uid(&"p"));
    found(snapshot.pod_by_uid(&"p".to_owned()));
    found(snapshot.pod_by_uid(&Box::<str>::from("p")));
    found(snapshot.pod_by_uid(&Arc::<str>::from("p")));
    found(snapshot.pod_by_uid(&std::borrow::Cow::from("p")));
    found(snapshot.pod_by_uid(&uid));
    found(snapshot.pod_by_uid(uid.as_uid_ref()));
    found(snapshot.pod_by_uid(&*uid.to_string()));
    found(["p"].iter().find_map(|uid| snapshot.pod_by_uid(uid)));
    found(snapshot.pod_by_full_name("db_default"));
    found(snapshot.pod_by_full_name(&"db_default"));
    found(snapshot.pod_by_full_name("db_default".to_owned()));
    found(snapshot.pod_by_full_name(&full_name));
}

#[test]
fn every_kind_of_change_has_its_pod_and_uid() {
    let (mut writer, reader) = index();
    let before = reader.snapshot();
    writer.upsert_pod(TestPod::plain("p", "db").with_ephemeral(1)).expect("a good pod");
    writer.upsert_pod(TestPod::plain("new", "new")).expect("a good pod");
    writer.remove_pod_by_uid("orphan").expect("it is there");
    let after = reader.snapshot();
    let changes = after.changes_since(&before);
    assert_eq!(changes[0].uid(), "orphan", "removals come first");
    for change in changes {
        let (old, new) = (change.before(), change.after());
        assert!(same(Some(change.pod()), new.or(old)));
        assert_eq!(change.uid(), change.pod().uid);
        match change.uid() {
            "orphan" => assert!(old.is_some() && new.is_none()),
            "p" => {
                assert_eq!((old.map(|pod| pod.ephemeral), new.map(|pod| pod.ephemeral)), (Some(0), Some(1)));
            }
            "new" => assert!(old.is_none() && new.is_some()),
            other => panic!("{other} has not changed"),
        }
    }
}

/// An optional method of the trait: its default.
#[test]
fn a_pod_that_does_not_count_its_ephemeral_containers_has_none() {
    let (mut writer, reader) = pod_index::new();
    writer.upsert_pod(SimplePod::new("u", "ns", "n")).expect("a good pod");
    assert_eq!(reader.load().ephemeral_container_count(), 0);
}

/// Counts and names, never the pods of a large index.
#[test]
fn debug_output_of_an_index_is_short_and_names_its_type() {
    let (mut writer, reader) = index();
    let before = reader.snapshot();
    let snapshot = "Snapshot { generation: 1, pods: 2, mirror_pods: 2, .. }";
    assert_eq!(format!("{before:?}"), format!("OwnedSnapshot {{ snapshot: {snapshot}, .. }}"));
    assert_eq!(format!("{:?}", reader.load()), format!("Guard {{ snapshot: {snapshot}, .. }}"));
    assert_eq!(format!("{reader:?}"), format!("Reader {{ current: {snapshot}, .. }}"));
    assert_eq!(format!("{:?}", reader.cached()), "CachedReader { .. }");
    assert_eq!(format!("{writer:?}"), format!("Writer {{ current: {snapshot}, retired_snapshots: 0, .. }}"));
    let manager = PodManager::<TestPod>::new();
    assert_eq!(
        format!("{manager:?}"),
        "PodManager { current: Snapshot { generation: 0, pods: 0, mirror_pods: 0, .. }, .. }"
    );

    let operations = [
        Operation::Set(pods().into()),
        Operation::Upsert(TestPod::plain("u", "n")),
        Operation::Remove("u".into()),
    ];
    assert_eq!(format!("{operations:?}"), "[Set(4 pods), Upsert(u), Remove(u)]");

    let p = TestPod::plain("p", "db");
    let upserted = writer.upsert_pod(Arc::clone(&p)).expect("a good pod");
    assert_eq!(format!("{upserted:?}"), "Replaced(..)");
    let upserted = writer.upsert_pod(p).expect("a good pod");
    assert_eq!(format!("{upserted:?}"), "Unchanged");
    let upserted = writer.upsert_pod(TestPod::plain("new", "new")).expect("a good pod");
    assert_eq!(format!("{upserted:?}"), "Added");
    writer.remove_pod_by_uid("orphan").expect("it is there");
    let after = reader.snapshot();
    let mut changes: Vec<String> =
        after.changes_since(&before).iter().map(|change| format!("{change:?}")).collect();
    changes.sort_unstable();
    assert_eq!(
        changes,
        ["Added(new_default, new)", "Removed(gone_kube-system, orphan)", "Updated(db_default, p)"]
    );
    let pair = after.pod_and_mirror_pod(after.mirror_pod_by_uid("m").expect("it is there"));
    assert_eq!(pair.pod.expect("its pod").uid, "s");
}

/// Padding and hashing, for terminal tables and maps by UID.
#[test]
fn uids_and_full_names_are_formatted_and_hashed_like_their_strings() {
    let full_name: FullName = "web_default".parse().expect("a full name");
    assert_eq!(format!("{full_name:>13}|{full_name:?}"), "  web_default|FullName(\"web_default\")");
    assert_eq!(full_name, "web_default");
    assert_ne!(full_name, "web_other");
    assert_eq!(full_name.as_ref(), "web_default");
    assert_eq!(full_name.as_str(), "web_default");
    assert!(HashSet::from([full_name]).contains("web_default"), "a full name hashes as its string");

    for uid in ["u 1", "0f1e2d3c4b5a69788796a5b4c3d2e1f0", "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"] {
        let wanted = format!("{uid:>40}|");
        assert_eq!(format!("{:>40}|", PodUid::from(uid)), wanted);
        assert_eq!(format!("{:>40}|", UidRef::from(&uid.to_owned())), wanted);
        assert_eq!(format!("{:?}", PodUid::from(uid)), format!("PodUid({uid:?})"));
        assert_eq!(format!("{:?}", MirrorPodUid::from(uid)), format!("MirrorPodUid({uid:?})"));
        assert_eq!(format!("{:?}", ResolvedPodUid::from(uid)), format!("ResolvedPodUid({uid:?})"));
        assert_ne!(PodUid::from(uid), "another");
        assert_eq!(PodUid::from(ResolvedPodUid::from(uid)), uid);
        assert_eq!(ResolvedPodUid::from(PodUid::from(uid)), uid);
    }
}

/// A pod with an IP and a container.
fn identified(uid: &str) -> SimplePod {
    let containers = vec![SimpleContainer { name: "app".into(), id: "3e5f0b1c".repeat(8) }];
    SimplePod { containers, ips: vec![[10, 0, 0, 7].into()], ..SimplePod::new(uid, "shop", "web-0") }
}

/// `get("10.0.0.7")` would otherwise look for a UID, and find nothing.
#[test]
fn text_that_is_another_identity_than_a_uid_finds_its_pod_through_every_handle() {
    let uid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    let container = "3e5f0b1c".repeat(8);
    let texts = [
        uid.to_owned(),
        "10.0.0.7".to_owned(),
        "::ffff:10.0.0.7".to_owned(),
        "10.0.0.7:443".to_owned(),
        "shop/web-0".to_owned(),
        "web-0_shop".to_owned(),
        container.clone(),
        format!("containerd://{container}"),
        format!("/var/log/pods/shop_web-0_{uid}/app/0.log"),
        format!("/var/lib/kubelet/pods/{uid}/volumes"),
    ];
    let options = Options::new().keep_removed(Duration::from_secs(60), 10).keep_times(true);
    let (mut writer, reader) = pod_index::with_options(options);
    writer.upsert_pod(identified(uid)).expect("a good pod");
    let (snapshot, mut cached) = (reader.load(), reader.cached());
    for text in &texts {
        assert!(snapshot.get(text).is_some_and(|found| found.pod.uid == uid), "{text}");
        assert!(cached.get(text).is_some() && reader.pod(text).is_some(), "{text}");
        assert!(reader.wait_for(text, std::time::Instant::now()).is_ok(), "{text}");
        assert_eq!(snapshot.claimants(&**text).count(), 1, "{text}");
        assert!(!snapshot.is_contested(text), "{text}");
        let at = snapshot.at(Time::now());
        let needs_time = !matches!(at.get(text), Holder::Pod(_));
        assert_eq!(
            needs_time,
            text.contains("0.0.7") || text.contains("web-0") && !text.contains(uid),
            "{text}"
        );
    }
    for text in ["u-2", "10.0.0.8", "shop/web-1", "web-0", "4711", "", "no such thing"] {
        assert!(snapshot.get(text).is_none() && !snapshot.is_contested(text), "{text}");
    }
    drop(snapshot);
    writer.remove_pod_by_uid(uid).expect("a known pod");
    let snapshot = reader.load();
    for text in &texts {
        assert!(snapshot.get(text).is_none(), "{text}");
        assert!(snapshot.removed().get(text).is_some(), "{text}");
        assert_eq!(snapshot.removed().claimants(&**text).count(), 1, "{text}");
    }
}

/// A manifest may set any UID. A key that is a UID by its type is never parsed.
#[test]
fn text_is_a_uid_if_a_pod_has_it() {
    let (mut writer, reader) = pod_index::new();
    writer.upsert_pod(identified("u-1")).expect("a good pod");
    let uid = PodUid::from("10.0.0.7");
    assert!(reader.pod(&uid).is_none());
    writer.upsert_pod(SimplePod::new("10.0.0.7", "default", "odd")).expect("a good pod");
    assert_eq!(reader.pod("10.0.0.7").expect("the odd one").name, "odd");
    assert_eq!(reader.pod(&uid).expect("the odd one").name, "odd");
    assert_eq!(reader.pod("10.0.0.7:443").expect("by its IP").name, "web-0");
    writer
        .upsert_pod(SimplePod { ips: vec![[10, 0, 0, 7].into()], ..SimplePod::new("u-2", "default", "two") })
        .expect("a good pod");
    let snapshot = reader.load();
    assert!(!snapshot.is_contested("10.0.0.7") && snapshot.is_contested("10.0.0.7:443"));
}

#[test]
fn addresses_and_pairs_of_strings_are_keys() {
    let (mut writer, reader) = pod_index::new();
    writer.upsert_pod(identified("u-1")).expect("a good pod");
    let pods = reader.load();
    let v4 = std::net::Ipv4Addr::new(10, 0, 0, 7);
    assert!(pods.get(v4).is_some() && pods.get(v4.to_ipv6_mapped()).is_some());
    assert!(pods.get(std::net::SocketAddr::from((v4, 443))).is_some());
    let (namespace, name) = ("shop".to_owned(), "web-0".to_owned());
    assert!(pods.get((&namespace, &name)).is_some() && pods.get((&*namespace, &name)).is_some());
}

/// An event of the last seconds must not get a certain answer because a batch asked without bounds.
#[test]
fn a_batch_has_the_same_default_bounds_as_a_single_lookup_at_a_time() {
    let bounds = pod_index::Tolerance::default();
    assert_eq!(bounds.skew, pod_index::AtTime::<()>::SKEW);
    assert_eq!(bounds.delay, pod_index::AtTime::<()>::DELAY);
}
