//! All intended differences from the kubelet, one by one, and one corner case that must be the same.
//!
//! Each test first states what the kubelet's pod manager does (`pkg/kubelet/pod/pod_manager.go`, 1.29 to
//! 1.36).

mod support;

use std::sync::Arc;

use pod_index::{ErrorKind, Operation, PodUid, Reader, Upserted, Writer};
use support::{TestPod, mirror_to_pod, pod_to_mirror, uids};

fn index() -> (Writer<TestPod>, Reader<TestPod>) {
    pod_index::new()
}

fn put(writer: &mut Writer<TestPod>, pods: impl IntoIterator<Item = Arc<TestPod>>) {
    for pod in pods {
        writer.update_pod(pod).expect("a good pod");
    }
}

fn orphans(reader: &Reader<TestPod>) -> Vec<String> {
    reader.load().orphaned_mirror_pod_full_names().map(|name| name.to_string()).collect()
}

/// The translation of one UID, as a string.
fn translated(reader: &Reader<TestPod>, uid: &str) -> String {
    reader.load().translate_pod_uid(uid).to_string()
}

// Corner 1. Kubelet: RemovePod of a static pod keeps the translation. The status manager needs it to report
// the last status of a terminating static pod. Same here.

#[test]
fn a_mirror_still_translates_to_a_removed_static_pod() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::fixed("s", "web"), TestPod::mirror("m", "web", "s")]);
    writer.remove_pod_by_uid("s");

    assert_eq!(translated(&reader, "m"), "s");
    assert_eq!(orphans(&reader), ["web_default"]);
    let snapshot = reader.load();
    assert_eq!(pod_to_mirror(&snapshot), [("s".into(), "m".into())].into());
    assert_eq!(snapshot.mirror_uid_of_pod("s").expect("still there"), "m");
    assert_eq!(snapshot.pod_uid_of_mirror("m").expect("still there"), "s");
}

#[test]
fn the_translation_to_a_gone_static_pod_ends_with_the_mirror() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::fixed("s", "web"), TestPod::mirror("m", "web", "s")]);
    writer.remove_pod_by_uid("s");
    writer.remove_pod_by_uid("m");
    put(&mut writer, [TestPod::mirror("m", "web", "s")]);

    assert_eq!(translated(&reader, "m"), "m");
    assert_eq!(reader.load().mirror_uid_of_pod("s"), None);
}

#[test]
fn the_translation_to_a_gone_static_pod_ends_when_another_pod_takes_the_full_name() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::fixed("s1", "web"), TestPod::mirror("m", "web", "s1")]);
    writer.remove_pod_by_uid("s1");
    put(&mut writer, [TestPod::fixed("s2", "web")]);

    assert_eq!(translated(&reader, "m"), "s2");
    assert_eq!(pod_to_mirror(&reader.load()), [("s2".into(), "m".into())].into());
}

#[test]
fn the_translation_to_a_gone_static_pod_is_there_again_when_the_pod_comes_back() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::fixed("s", "web"), TestPod::mirror("m", "web", "s")]);
    writer.remove_pod_by_uid("s");
    put(&mut writer, [TestPod::fixed("s", "web")]);
    assert_eq!(translated(&reader, "m"), "s");
    assert_eq!(orphans(&reader), [""; 0]);
}

/// A difference. Kubelet: a mirror added while no pod holds its full name translates to its own UID. So one
/// pod has two identities if its mirror is created again while it terminates. Here the full name keeps its
/// translation as long as it has a mirror.
#[test]
fn a_mirror_added_after_its_static_pod_was_removed_translates_like_the_previous_mirror() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::fixed("s", "web"), TestPod::mirror("m1", "web", "s")]);
    writer.remove_pod_by_uid("s");
    put(&mut writer, [TestPod::mirror("m2", "web", "s")]);
    assert_eq!(translated(&reader, "m2"), "s", "whatever its hash is");
    assert_eq!(translated(&reader, "m1"), "s");
    assert_eq!(pod_to_mirror(&reader.load()), [("s".into(), "m2".into())].into());
    writer.remove_pod_by_uid("m1");
    assert_eq!(translated(&reader, "m2"), "s");
    // With the last mirror of the name, the translation ends.
    writer.remove_pod_by_uid("m2");
    put(&mut writer, [TestPod::mirror("m3", "web", "s")]);
    assert_eq!(translated(&reader, "m3"), "m3");
}

/// Both pack to the same words.
#[test]
fn a_uuid_and_32_digits_with_equal_packed_words_are_two_pods() {
    let (uuid, hex) = ("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "0f1e2d3ce4b5a16978f87960a5b4c3d2");
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::plain(uuid, "one"), TestPod::plain(hex, "other")]);
    assert_eq!(reader.load().pods().len(), 2);
    for (uid, name) in [(uuid, "one"), (hex, "other")] {
        assert_eq!(reader.load().pod_by_uid(uid).expect("it is there").name, name);
        assert_eq!(reader.load().pod_by_uid(&PodUid::from(uid)).expect("it is there").name, name);
    }
    assert_eq!(writer.remove_pod_by_uid(uuid).expect("it is there").name, "one");
    assert_eq!(reader.load().pod_by_uid(uuid), None);
    assert_eq!(reader.load().pod_by_uid(hex).expect("it stays").name, "other");

    put(&mut writer, [TestPod::fixed("s", "web"), TestPod::mirror(uuid, "web", "s")]);
    assert_eq!(translated(&reader, uuid), "s");
    assert_eq!(translated(&reader, hex), hex);
    assert_eq!(reader.load().mirror_pod_by_uid(hex), None);
}

// Corner 2. Kubelet: RemovePod of u1 deletes the name entry although u2 exists and holds it: logs and exec
// return 404, and u2's mirror looks orphaned and is deleted. Two sources with one name can cause this
// (k/k#105204).

#[test]
fn the_full_name_stays_with_the_remaining_pod_when_its_namesake_is_removed() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::fixed("u1", "web"), TestPod::fixed("u2", "web")]);
    put(&mut writer, [TestPod::mirror("m", "web", "u2")]);
    writer.remove_pod_by_uid("u1");

    assert_eq!(reader.load().pod_by_full_name("web_default").expect("u2").uid, "u2");
    assert_eq!(translated(&reader, "m"), "u2");
    assert_eq!(orphans(&reader), [""; 0]);
}

#[test]
fn the_namesake_with_the_smallest_uid_takes_over_when_the_holder_of_a_full_name_goes() {
    let (mut writer, reader) = index();
    put(&mut writer, ["u3", "u1", "u2", "u4"].map(|uid| TestPod::plain(uid, "web")));
    put(&mut writer, [TestPod::mirror("m", "web", "")]);

    for next in ["u1", "u2", "u3"] {
        let holder = reader.get(("default", "web")).expect("a pod holds it");
        writer.remove_pod(&holder);
        assert_eq!(reader.load().pod_by_full_name("web_default").expect("the next holds it").uid, next);
        assert_eq!(translated(&reader, "m"), next);
    }
    writer.remove_pod_by_uid("u3");
    assert_eq!(reader.load().pod_by_full_name("web_default"), None);
}

#[test]
fn a_pod_that_is_updated_takes_its_full_name_back_from_a_namesake() {
    let (mut writer, reader) = index();
    let first = TestPod::plain("u1", "web");
    put(&mut writer, [Arc::clone(&first), TestPod::plain("u2", "web"), first]);
    assert_eq!(reader.load().pod_by_full_name("web_default").expect("u1").uid, "u1");
    writer.remove_pod_by_uid("u1");
    assert_eq!(reader.load().pod_by_full_name("web_default").expect("u2").uid, "u2");
}

// Corner 3. Kubelet: if m2 is added before m1 is removed, GetUIDTranslations picks one of them at random, and
// removing m1 deletes the name entry that m2 holds.

#[test]
fn the_new_mirror_holds_the_full_name_when_the_old_one_goes_after_it() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::fixed("s", "web")]);
    put(&mut writer, [TestPod::mirror("m1", "web", "s"), TestPod::mirror("m2", "web", "s")]);

    let both = [("m1".into(), "s".into()), ("m2".into(), "s".into())].into();
    assert_eq!(mirror_to_pod(&reader.load()), both, "every living mirror translates");
    assert_eq!(
        pod_to_mirror(&reader.load()),
        [("s".into(), "m2".into())].into(),
        "the holder translates back"
    );

    writer.remove_pod_by_uid("m1");
    let pod = reader.get("s").expect("s");
    assert_eq!(reader.load().mirror_pod_by_pod(&pod).expect("m2").uid, "m2");
    assert_eq!(mirror_to_pod(&reader.load()), [("m2".into(), "s".into())].into());
}

#[test]
fn the_old_mirror_holds_the_full_name_again_when_the_new_one_goes() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::fixed("s", "web")]);
    put(&mut writer, [TestPod::mirror("m1", "web", "s"), TestPod::mirror("m2", "web", "s")]);
    writer.remove_pod_by_uid("m2");
    assert_eq!(pod_to_mirror(&reader.load()), [("s".into(), "m1".into())].into());
    assert_eq!(translated(&reader, "m1"), "s");
}

#[test]
fn all_mirrors_follow_their_static_pod_when_its_uid_changes() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::fixed("s1", "web")]);
    put(&mut writer, [TestPod::mirror("m1", "web", "s1"), TestPod::mirror("m2", "web", "s1")]);
    writer.remove_pod_by_uid("s1");
    put(&mut writer, [TestPod::fixed("s2", "web")]);
    for mirror in ["m1", "m2"] {
        assert_eq!(translated(&reader, mirror), "s2");
    }
}

// Corner 4. Kubelet: a UID that is added again under another full name leaves its old name entry. A static
// pod that takes the old name is then paired with a mirror of the new one.

#[test]
fn a_renamed_pod_leaves_no_entry_under_its_old_full_name() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::plain("u", "old"), TestPod::plain("u", "new")]);
    assert_eq!(reader.load().pod_by_full_name("old_default"), None);
    assert_eq!(reader.load().pod_by_full_name("new_default").expect("u").uid, "u");
    assert_eq!(uids(reader.load().pods()), ["u"]);
}

#[test]
fn a_renamed_mirror_is_not_joined_to_the_static_pod_of_its_old_full_name() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::mirror("m", "a", "x"), TestPod::mirror("m", "b", "x")]);
    put(&mut writer, [TestPod::fixed("s", "a")]);
    assert_eq!(translated(&reader, "m"), "m");
    assert_eq!(reader.load().mirror_pod_by_pod(reader.load().pod_by_uid("s").expect("s")), None);
}

#[test]
fn the_translation_ends_when_the_static_pod_is_renamed() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::fixed("s", "a"), TestPod::mirror("m", "a", "s"), TestPod::fixed("s", "b")]);
    assert_eq!(translated(&reader, "m"), "m");
    assert_eq!(orphans(&reader), ["a_default"]);
}

#[test]
fn the_translation_to_a_gone_static_pod_ends_when_its_uid_comes_back_under_another_full_name() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::fixed("s", "a"), TestPod::mirror("m", "a", "s")]);
    writer.remove_pod_by_uid("s");
    put(&mut writer, [TestPod::fixed("s", "b")]);
    assert_eq!(translated(&reader, "m"), "m");
    assert_eq!(pod_to_mirror(&reader.load()), [("s".into(), String::new())].into());
}

// Corner 5. Kubelet: a pod that gains or loses the mirror annotation stays in both sets of maps.

#[test]
fn a_pod_that_becomes_a_mirror_is_no_longer_a_pod() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::plain("u", "web").with_ephemeral(3), TestPod::mirror("u", "web", "x")]);
    let snapshot = reader.load();
    assert!(snapshot.pod_by_uid("u").is_none());
    assert!(snapshot.mirror_pod_by_uid("u").is_some());
    assert_eq!((snapshot.pods().len(), snapshot.mirror_pods().len()), (0, 1));
    assert_eq!(snapshot.ephemeral_container_count(), 0);
}

#[test]
fn a_mirror_that_becomes_a_pod_is_no_longer_a_mirror() {
    let (mut writer, reader) = index();
    put(
        &mut writer,
        [TestPod::fixed("s", "web"), TestPod::mirror("u", "web", "s"), TestPod::plain("u", "web")],
    );
    let snapshot = reader.load();
    assert!(snapshot.mirror_pod_by_uid("u").is_none());
    assert_eq!(snapshot.pod_by_full_name("web_default").expect("u").uid, "u");
    assert_eq!(snapshot.translate_pod_uid("u"), "u");
    assert_eq!(pod_to_mirror(&snapshot), [("s".into(), String::new())].into());
}

#[test]
fn the_translation_ends_when_the_static_pod_becomes_a_mirror_itself() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::fixed("s", "web"), TestPod::mirror("m", "web", "s")]);
    put(&mut writer, [TestPod::mirror("s", "web", "x")]);
    assert_eq!(translated(&reader, "m"), "m");
    assert_eq!(mirror_to_pod(&reader.load()), [].into());
}

// Corner 6. Kubelet: RemovePod subtracts the argument's ephemeral containers, even for an unknown pod, so the
// gauge drifts and can become negative.

#[test]
fn the_stored_pod_counts_when_a_differing_one_is_removed() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::plain("u", "web").with_ephemeral(2)]);
    let removed = writer.remove_pod(&TestPod::plain("u", "other").with_ephemeral(7)).expect("it was known");
    assert_eq!((removed.name.as_str(), removed.ephemeral), ("web", 2));
    assert_eq!(reader.load().ephemeral_container_count(), 0);
    assert_eq!(reader.load().pod_by_full_name("web_default"), None);
}

#[test]
fn removing_an_unknown_pod_returns_none_and_publishes_nothing() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::plain("u", "web").with_ephemeral(2)]);
    assert_eq!(writer.remove_pod(&TestPod::plain("unknown", "web").with_ephemeral(9)), None);
    assert!(writer.remove_pod_by_uid("u").is_some());
    assert!(writer.remove_pod_by_uid("u").is_none(), "a second time");
    assert_eq!(reader.load().ephemeral_container_count(), 0);
    assert_eq!(reader.load().generation(), 2);
}

// Corner 7. Kubelet: accepts them.

#[test]
fn empty_fields_are_refused_by_name_and_do_not_change_the_index() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::plain("u", "web")]);
    let good = TestPod { uid: "v".into(), name: "n".into(), namespace: "ns".into(), ..TestPod::default() };
    let cases = [
        (TestPod { uid: String::new(), ..good.clone() }, ErrorKind::Empty, "metadata.uid"),
        (TestPod { name: String::new(), ..good.clone() }, ErrorKind::Empty, "metadata.name"),
        (TestPod { namespace: String::new(), ..good.clone() }, ErrorKind::Empty, "metadata.namespace"),
    ];
    for (bad, kind, field) in cases {
        let error = writer.update_pod(bad.clone()).expect_err("refused");
        assert_eq!((error.kind(), error.field()), (kind, field));
        assert_eq!(
            (error.uid(), error.full_name()),
            (&*bad.uid, &*format!("{}_{}", bad.name, bad.namespace))
        );
        assert!(error.to_string().contains(field), "{error}");
    }
    assert_eq!(reader.load().generation(), 1);
    assert_eq!(uids(reader.load().pods()), ["u"]);
}

/// With each of the writing methods.
#[test]
fn a_refused_update_of_a_known_pod_leaves_it_as_it_was() {
    let (mut writer, reader) = index();
    let (pod, mirror) = (TestPod::fixed("s", "web"), TestPod::mirror("m", "web", "s"));
    put(&mut writer, [Arc::clone(&pod), Arc::clone(&mirror)]);
    for bad in [TestPod::fixed("s", "_default"), TestPod::mirror("m", "web_", "s")] {
        let error = writer.update_pod(Arc::clone(&bad)).expect_err("refused");
        assert_eq!(error.uid(), bad.uid);
        assert_eq!(writer.add_pod(Arc::clone(&bad)).expect_err("refused"), error);
        let applied = writer.apply([Operation::Remove("nobody".into()), Operation::Update(Arc::clone(&bad))]);
        assert!(!applied.published);
        assert_eq!((applied.refused.len(), applied.refused[0].operation), (1, 1));
        assert_eq!(applied.refused[0].error, error);
        let applied = writer.set_pods([Arc::clone(&pod), bad, Arc::clone(&mirror)]);
        assert!(!applied.published);
        assert_eq!((applied.refused.len(), applied.refused[0].position), (1, 1));

        let snapshot = reader.load();
        assert_eq!(snapshot.generation(), 2, "nothing was published");
        assert!(snapshot.pod_by_full_name("web_default").is_some_and(|known| Arc::ptr_eq(known, &pod)));
        assert!(snapshot.mirror_pod_by_uid("m").is_some_and(|known| Arc::ptr_eq(known, &mirror)));
        assert_eq!(translated(&reader, "m"), "s");
    }
}

// Another difference. Kubelet: joins name and namespace by `_` without checking them, so pod `a_b` of namespace `c`
// and pod `a` of namespace `b_c` share an entry. Kubernetes' validation allows `_` in neither.

#[test]
fn names_that_would_make_a_full_name_ambiguous_are_refused() {
    let (mut writer, reader) = index();
    let good = TestPod { uid: "v".into(), name: "n".into(), namespace: "ns".into(), ..TestPod::default() };
    let name = writer.add_pod(TestPod { name: "a_b".into(), ..good.clone() }).expect_err("refused");
    assert_eq!((name.kind(), name.field()), (ErrorKind::Separator, "metadata.name"));
    let namespace = writer.add_pod(TestPod { namespace: "b_c".into(), ..good }).expect_err("refused");
    assert_eq!((namespace.kind(), namespace.field()), (ErrorKind::Separator, "metadata.namespace"));
    assert_eq!(reader.load().generation(), 0);
}

// Corner 8. Kubelet: upserts into fresh maps, but counts each duplicate's ephemeral containers.

#[test]
fn a_set_with_duplicates_equals_adding_one_by_one() {
    let list = || {
        [
            TestPod::plain("u", "a").with_ephemeral(1),
            TestPod::fixed("s", "web").with_ephemeral(2),
            TestPod::plain("u", "b").with_ephemeral(4),
            TestPod::mirror("m", "web", "s"),
            TestPod::plain("v", "b").with_ephemeral(8),
        ]
    };
    let (mut one_by_one, expected) = index();
    put(&mut one_by_one, list());
    let (mut at_once, reader) = index();
    put(&mut at_once, [TestPod::plain("gone", "gone")]);
    let applied = at_once.set_pods(list());
    assert_eq!((applied.generation, applied.published, applied.refused.len()), (2, true, 0));

    let (have, want) = (reader.load(), expected.load());
    assert_eq!(have.ephemeral_container_count(), 14);
    assert_eq!(have.ephemeral_container_count(), want.ephemeral_container_count());
    assert_eq!(uids(have.pods()), uids(want.pods()));
    assert_eq!(uids(have.mirror_pods()), uids(want.mirror_pods()));
    assert_eq!(pod_to_mirror(&have), pod_to_mirror(&want));
    for name in ["a_default", "b_default", "web_default", "gone_default"] {
        assert_eq!(have.pod_by_full_name(name), want.pod_by_full_name(name), "{name}");
    }
}

// Publication.

#[test]
fn a_batch_publishes_once_and_reports_what_it_refused() {
    let (mut writer, reader) = index();
    let applied = writer.apply([
        Operation::Add(TestPod::plain("u1", "a")),
        Operation::Update(TestPod::plain("", "b")),
        Operation::Set(vec![TestPod::plain("u2", "c"), TestPod::plain("", "d"), TestPod::plain("u3", "e")]),
        Operation::Remove("u3".into()),
        Operation::Remove("unknown".into()),
    ]);
    assert_eq!((applied.generation, applied.published), (1, true));
    let refused: Vec<_> =
        applied.refused.iter().map(|refused| (refused.operation, refused.position)).collect();
    assert_eq!(refused, [(1, 0), (2, 1)]);
    assert_eq!(uids(reader.load().pods()), ["u2"]);
}

#[test]
fn a_write_that_changes_nothing_publishes_nothing() {
    let (mut writer, reader) = index();
    let pods = [TestPod::fixed("s", "web"), TestPod::mirror("m", "web", "s"), TestPod::plain("u", "a")];
    assert!(writer.set_pods(pods.clone()).published);

    assert!(matches!(writer.update_pod(Arc::clone(&pods[0])), Ok(Upserted::Unchanged)));
    assert!(!writer.set_pods(pods.clone()).published);
    assert!(!writer.set_pods(pods.iter().rev().cloned()).published, "the order of a set does not matter");
    assert!(!writer.apply(pods.clone().map(Operation::Update)).published);
    assert!(!writer.apply([]).published);
    assert_eq!(reader.load().generation(), 1);

    assert!(writer.set_pods(pods[..2].to_vec()).published, "one is missing");
    assert!(writer.set_pods(pods.clone()).published, "one is new");
    assert!(writer.update_pod(TestPod::clone(&pods[2])).is_ok());
    assert_eq!(reader.load().generation(), 4, "an equal pod that is another object is published");
}

#[test]
fn a_set_of_the_same_pods_still_ends_the_translation_to_a_gone_static_pod() {
    let (mut writer, reader) = index();
    let mirror = TestPod::mirror("m", "web", "s");
    put(&mut writer, [TestPod::fixed("s", "web"), Arc::clone(&mirror)]);
    writer.remove_pod_by_uid("s");
    assert_eq!(translated(&reader, "m"), "s");
    assert!(writer.set_pods([mirror]).published);
    assert_eq!(translated(&reader, "m"), "m");
}

#[test]
fn an_equal_set_publishes_nothing_even_with_repeated_refused_and_shared_names() {
    let (mut writer, reader) = index();
    let web = TestPod::plain("u1", "web");
    let pods = [
        TestPod::plain("u1", "old"),
        Arc::clone(&web),
        TestPod::plain("", "bad"),
        TestPod::plain("u2", "web"),
    ];
    assert!(writer.set_pods(pods.clone()).published);
    let again = writer.set_pods(pods.clone());
    assert!(!again.published);
    assert_eq!(again.refused.len(), 1, "refused every time");
    assert_eq!(reader.load().generation(), 1);

    let turned = writer.set_pods([&pods[3], &pods[1]].map(Arc::clone));
    assert!(turned.published, "another order gives the name to another pod");
    assert_eq!(reader.load().pod_by_full_name("web_default").expect("held by the last").uid, "u1");
}

// A write without a net change publishes nothing. The kubelet has no publications.

#[test]
fn a_batch_that_cancels_out_publishes_nothing() {
    let (mut writer, reader) = index();
    let (web, mirror) = (TestPod::fixed("s", "web"), TestPod::mirror("m", "web", "s"));
    put(&mut writer, [Arc::clone(&web), Arc::clone(&mirror)]);
    let add = |pod: &Arc<TestPod>| Operation::Add(Arc::clone(pod));
    let all = || vec![Arc::clone(&mirror), Arc::clone(&web)];
    for batch in [
        vec![add(&TestPod::plain("p", "db")), Operation::Remove("p".into())],
        vec![Operation::Remove("s".into()), add(&web)],
        vec![add(&TestPod::plain("s", "other")), add(&web)],
        vec![Operation::Set(vec![]), add(&web), add(&mirror)],
        vec![Operation::Set(vec![]), Operation::Set(all())],
        vec![add(&TestPod::plain("p", "web")), Operation::Remove("p".into())],
    ] {
        let applied = writer.apply(batch);
        assert!(!applied.published);
        assert_eq!((applied.generation, reader.load().generation()), (2, 2));
    }
    assert!(!writer.set_pods(all()).published);
    assert!(writer.apply([Operation::Set(vec![]), add(&web)]).published, "the mirror is gone");
}

/// Adding the very object that is stored takes back a name that another pod holds: that is a change.
#[test]
fn adding_the_same_object_again_is_a_change_only_if_another_holds_its_name() {
    let (mut writer, reader) = index();
    let first = TestPod::plain("p1", "web");
    put(&mut writer, [Arc::clone(&first), TestPod::plain("p2", "web")]);
    assert!(matches!(writer.add_pod(Arc::clone(&first)), Ok(Upserted::Replaced(_))));
    assert!(reader.load().pod_by_full_name("web_default").is_some_and(|pod| Arc::ptr_eq(pod, &first)));
    assert!(matches!(writer.add_pod(first), Ok(Upserted::Unchanged)));
    assert_eq!(reader.load().generation(), 3);
}
