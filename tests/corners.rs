//! All intended differences from the kubelet, one by one, and one corner case that must be the same.
//!
//! Each test first states what the kubelet's pod manager does (`pkg/kubelet/pod/pod_manager.go`, 1.29 to
//! 1.36).

mod support;

use std::sync::Arc;

use pod_index::{ErrorKind, Operation, PodUid, Reader, Upserted, Writer};
use support::{TestPod, invariants, mirror_to_pod, pod_to_mirror, uids};

fn index() -> (Writer<TestPod>, Reader<TestPod>) {
    pod_index::new()
}

fn put(writer: &mut Writer<TestPod>, pods: impl IntoIterator<Item = Arc<TestPod>>) {
    for pod in pods {
        writer.upsert_pod(pod).expect("a good pod");
    }
}

/// The translation of one UID, as a string.
fn translated(reader: &Reader<TestPod>, uid: &str) -> String {
    reader.load().translate_pod_uid(uid).to_string()
}

/// The index after these steps. `s!web` stores the static pod `s` named `web`, `m~web` a mirror pod, `u.web` another pod;
/// `-s` removes one. Each pod has an ephemeral container.
fn after(history: &str) -> Reader<TestPod> {
    let (mut writer, reader) = index();
    for step in history.split(' ') {
        if let Some(uid) = step.strip_prefix('-') {
            writer.remove_pod_by_uid(uid).expect("a known pod");
            continue;
        }
        let at = step.find(['!', '~', '.']).expect("a kind");
        let (uid, name) = (&step[..at], &step[at + 1..]);
        let pod = match &step[at..=at] {
            "!" => TestPod::fixed(uid, name),
            "~" => TestPod::mirror(uid, name, "any hash"),
            _ => TestPod::plain(uid, name),
        };
        put(&mut writer, [pod.with_ephemeral(1)]);
    }
    reader
}

/// For each name, the pod and the mirror pod that hold it: `web:s/m`. Then the translations of mirrors: `m>s`. Then the
/// mirror of each static or translated pod: `s<m`.
fn state(reader: &Reader<TestPod>) -> String {
    let snapshot = reader.load();
    invariants::check(&snapshot);
    let mut parts = Vec::new();
    let orphaned: Vec<_> = snapshot.orphaned_mirror_pod_full_names().map(|name| name.to_string()).collect();
    for name in ["a", "b", "new", "old", "web"] {
        let full_name = format!("{name}_default");
        let uid = |pod: Option<&Arc<TestPod>>| pod.map_or("-".to_owned(), |pod| pod.uid.clone());
        let pod = snapshot.pod_by_full_name(&full_name);
        let mirror = snapshot.mirror_pod_by_full_name(&full_name);
        assert_eq!(orphaned.contains(&full_name), pod.is_none() && mirror.is_some(), "{name}");
        if pod.is_some() || mirror.is_some() {
            parts.push(format!("{name}:{}/{}", uid(pod), uid(mirror)));
        }
    }
    parts.extend(mirror_to_pod(&snapshot).iter().map(|(mirror, pod)| format!("{mirror}>{pod}")));
    parts.extend(pod_to_mirror(&snapshot).iter().map(|(pod, mirror)| format!("{pod}<{mirror}")));
    parts.join(" ")
}

#[test]
fn the_differences_from_the_kubelet_in_names_and_translations() {
    for (history, expected, why) in [
        // Corner 1. Kubelet: RemovePod of a static pod keeps the translation. The status manager needs it to report
        // the last status of a terminating static pod. Same here.
        ("s!web m~web -s", "web:-/m m>s s<m", "a mirror still translates to a removed static pod"),
        ("s!web m~web -s -m m~web", "web:-/m", "that translation ends with the mirror"),
        ("s1!web m~web -s1 s2!web", "web:s2/m m>s2 s2<m", "and when another pod takes the full name"),
        ("s!web m~web -s s!web", "web:s/m m>s s<m", "it is there again when the pod comes back"),
        // A difference. Kubelet: a mirror added while no pod holds its full name translates to its own UID. So one
        // pod has two identities if its mirror is created again while it terminates. Here the full name keeps its
        // translation as long as it has a mirror.
        (
            "s!web m1~web -s m2~web",
            "web:-/m2 m1>s m2>s s<m2",
            "a later mirror translates like the previous one",
        ),
        ("s!web m1~web -s m2~web -m1", "web:-/m2 m2>s s<m2", "also without the previous one"),
        ("s!web m1~web -s m2~web -m1 -m2 m3~web", "web:-/m3", "it ends with the last mirror of the name"),
        // Corner 2. Kubelet: RemovePod of u1 deletes the name entry although u2 exists and holds it: logs and exec
        // return 404, and u2's mirror looks orphaned and is deleted. Two sources with one name can cause this
        // (k/k#105204).
        ("u1!web u2!web m~web -u1", "web:u2/m m>u2 u2<m", "the remaining pod keeps the name"),
        ("u3.web u1.web u2.web u4.web m~web", "web:u4/m m>u4 u4<m", "the last one holds the name"),
        ("u3.web u1.web u2.web u4.web m~web -u4", "web:u1/m m>u1 u1<m", "then the smallest UID"),
        ("u3.web u1.web u2.web u4.web m~web -u4 -u1", "web:u2/m m>u2 u2<m", "and the next"),
        ("u3.web u1.web u2.web u4.web m~web -u4 -u1 -u2", "web:u3/m m>u3 u3<m", "and the last"),
        ("u3.web m~web -u3", "web:-/m m>u3 u3<m", "and nobody"),
        ("u1.web u2.web u1.web", "web:u1/-", "an updated pod takes its name back"),
        ("u1.web u2.web u1.web -u1", "web:u2/-", "until it goes"),
        // Corner 3. Kubelet: if m2 is added before m1 is removed, GetUIDTranslations picks one of them at random, and
        // removing m1 deletes the name entry that m2 holds.
        ("s!web m1~web m2~web", "web:s/m2 m1>s m2>s s<m2", "every living mirror translates, the holder back"),
        ("s!web m1~web m2~web -m1", "web:s/m2 m2>s s<m2", "the new mirror stays when the old one goes"),
        ("s!web m1~web m2~web -m2", "web:s/m1 m1>s s<m1", "and the other way round"),
        ("s1!web m1~web m2~web -s1 s2!web", "web:s2/m2 m1>s2 m2>s2 s2<m2", "all mirrors follow another UID"),
        // Corner 4. Kubelet: a UID that is added again under another full name leaves its old name entry. A static
        // pod that takes the old name is then paired with a mirror of the new one.
        ("u.old u.new", "new:u/-", "a renamed pod leaves no entry under its old name"),
        ("m~a m~b s!a", "a:s/- b:-/m s<", "a renamed mirror is not joined to the pod of its old name"),
        ("s!a m~a s!b", "a:-/m b:s/- s<", "the translation ends when the static pod is renamed"),
        ("s!a m~a -s s!b", "a:-/m b:s/- s<", "also when it comes back under another name"),
        // Corner 5. Kubelet: a pod that gains or loses the mirror annotation stays in both sets of maps.
        ("u.web u~web", "web:-/u", "a pod that becomes a mirror is no longer a pod"),
        ("s!web u~web u.web", "web:u/- s<", "a mirror that becomes a pod is no longer a mirror"),
        ("s!web m~web s~web", "web:-/s", "the translation ends when the static pod becomes a mirror"),
    ] {
        assert_eq!(state(&after(history)), expected, "{history}: {why}");
    }
}

#[test]
fn of_the_pods_with_one_name_the_last_stored_one_comes_first_and_then_the_smallest_uid() {
    let (reader, name) = (after("u3.web u1.web u2.web u4.other"), ("default", "web"));
    let pods = reader.load();
    let uids: Vec<_> = pods.claimants(name).map(|found| found.pod.uid.clone()).collect();
    assert_eq!((uids, pods.is_contested(name)), (["u2", "u1", "u3"].map(str::to_owned).into(), true));
    assert!(!pods.is_contested(("default", "other")));
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
fn empty_and_ambiguous_names_are_refused_by_their_field_and_do_not_change_the_index() {
    let (mut writer, reader) = index();
    put(&mut writer, [TestPod::plain("u", "web")]);
    for (uid, name, namespace, kind, field) in [
        ("", "n", "ns", ErrorKind::Empty, "metadata.uid"),
        ("v", "", "ns", ErrorKind::Empty, "metadata.name"),
        ("v", "n", "", ErrorKind::Empty, "metadata.namespace"),
        // Another difference. Kubelet: joins name and namespace by `_` without checking them, so pod `a_b` of namespace
        // `c` and pod `a` of namespace `b_c` share an entry. Kubernetes' validation allows `_` in neither.
        ("v", "a_b", "ns", ErrorKind::Separator, "metadata.name"),
        ("v", "n", "b_c", ErrorKind::Separator, "metadata.namespace"),
    ] {
        let bad =
            TestPod { uid: uid.into(), name: name.into(), namespace: namespace.into(), ..TestPod::default() };
        let error = writer.upsert_pod(bad).expect_err("refused");
        assert_eq!((error.kind, error.field), (kind, field));
        assert_eq!((&*error.uid, &*error.full_name), (uid, &*format!("{name}_{namespace}")));
        assert!(error.to_string().contains(field), "{error}");
    }
    assert_eq!(reader.load().generation(), 1);
    assert_eq!(uids(reader.load().pods()), ["u"]);
}

// Corner 8. Kubelet: upserts into fresh maps, but counts each duplicate's ephemeral containers.

#[test]
fn of_the_duplicates_in_a_set_only_the_last_one_counts() {
    let (mut writer, reader) = index();
    let pods = [("u", "a", 1), ("s", "web", 2), ("u", "b", 4), ("v", "b", 8)];
    let applied =
        writer.set_pods(pods.map(|(uid, name, count)| TestPod::plain(uid, name).with_ephemeral(count)));
    assert_eq!((applied.refused.len(), reader.load().ephemeral_container_count()), (0, 14));
}

// Publication.

#[test]
fn a_write_that_changes_nothing_publishes_nothing() {
    let (mut writer, reader) = index();
    let pods = [TestPod::fixed("s", "web"), TestPod::mirror("m", "web", "s"), TestPod::plain("u", "a")];
    assert!(writer.set_pods(pods.clone()).published);

    assert!(matches!(writer.upsert_pod(Arc::clone(&pods[0])), Ok(Upserted::Unchanged)));
    assert!(!writer.set_pods(pods.clone()).published);
    assert!(!writer.set_pods(pods.iter().rev().cloned()).published, "the order of a set does not matter");
    assert!(!writer.apply(pods.clone().map(Operation::Upsert)).published);
    assert!(!writer.apply([]).published);
    assert_eq!(reader.load().generation(), 1);

    assert!(writer.set_pods(pods[..2].to_vec()).published, "one is missing");
    assert!(writer.set_pods(pods.clone()).published, "one is new");
    assert!(writer.upsert_pod(TestPod::clone(&pods[2])).is_ok());
    assert_eq!(reader.load().generation(), 4, "an equal pod that is another object is published");
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

/// The pods are the same, but a set begins with an empty index, in which nothing was removed.
#[test]
fn a_set_of_the_same_pods_still_ends_the_translation_to_a_gone_static_pod() {
    let (mut writer, reader) = index();
    let mirror = TestPod::mirror("m", "web", "s");
    put(&mut writer, [TestPod::fixed("s", "web"), Arc::clone(&mirror)]);
    writer.remove_pod_by_uid("s").expect("a known pod");
    assert_eq!(translated(&reader, "m"), "s");
    assert!(writer.set_pods([mirror]).published);
    assert_eq!(translated(&reader, "m"), "m");
}

// A write without a net change publishes nothing. The kubelet has no publications.

#[test]
fn a_batch_that_cancels_out_publishes_nothing() {
    let (mut writer, reader) = index();
    let (web, mirror) = (TestPod::fixed("s", "web"), TestPod::mirror("m", "web", "s"));
    put(&mut writer, [Arc::clone(&web), Arc::clone(&mirror)]);
    let add = |pod: &Arc<TestPod>| Operation::Upsert(Arc::clone(pod));
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
