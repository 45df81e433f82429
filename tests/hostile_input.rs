//! Malformed and hostile input: a defined result, no panic, no quadratic time.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use pod_index::{Operation, is_mirror_pod_of};
use support::{TestPod, uids};

/// Enough that a quadratic step would take minutes: the tests then simply never end.
const MANY: usize = 100_000;

#[test]
fn a_uid_of_ten_megabytes_is_a_uid_like_any_other() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let huge = "ü".repeat(5 << 20);
    writer.upsert_pod(TestPod::plain(&huge, "web")).expect("a good pod");
    assert_eq!(reader.load().pod_by_uid(&huge).expect("it is there").name, "web");
    assert_eq!(reader.load().translate_pod_uid(&huge), &*huge);
    assert!(reader.load().pod_by_uid(&huge[2..]).is_none());

    let error = writer.upsert_pod(TestPod::plain(&huge, "")).expect_err("refused");
    assert!(error.to_string().len() < 1000, "an error is not as long as its pod");
    assert!(writer.remove_pod_by_uid(&huge).is_some());
}

#[test]
fn a_pod_with_a_million_annotations_is_indexed_by_the_one_that_matters() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let annotations: BTreeMap<_, _> =
        (0..1_000_000).map(|i| (format!("example.com/{i}"), String::new())).collect();
    let mut mirror = TestPod::mirror("m", "web", "s");
    Arc::make_mut(&mut mirror).annotations.extend(annotations);
    let _ =
        writer.apply([Operation::Upsert(TestPod::fixed("s", "web")), Operation::Upsert(Arc::clone(&mirror))]);
    assert_eq!(reader.load().translate_pod_uid("m"), "s");
    assert!(is_mirror_pod_of(&*mirror, &*reader.pod("s").expect("s")));
}

#[test]
fn names_with_nul_and_non_ascii_are_found_unchanged() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    for (uid, name) in
        [("u1", "a\0b"), ("u2", "a"), ("u3", "パン"), ("u4", "\u{202e}x"), ("u5", " "), ("u6", "/../")]
    {
        writer.upsert_pod(TestPod::plain(uid, name)).expect("a good pod");
        assert_eq!(reader.load().pod_by_name("default", name).expect("it is there").uid, uid);
        assert_eq!(reader.load().pod_by_full_name(format!("{name}_default")).expect("it is there").uid, uid);
    }
    assert!(reader.load().pod_by_name("default", "a\0").is_none());
}

/// No spelling is another one's: nothing is trimmed, and no letter's case changes.
#[test]
fn uids_that_look_alike_are_different_pods() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let spellings = [
        "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
        "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0",
        "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "0F1E2D3C4B5A69788796A5B4C3D2E1F0",
        "{0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0}",
        "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0 ",
        "0",
        "\0",
    ];
    for (number, uid) in spellings.iter().enumerate() {
        writer.upsert_pod(TestPod::plain(uid, &format!("pod-{number}"))).expect("a good pod");
    }
    for (number, uid) in spellings.iter().enumerate() {
        let found = reader.load().pod_by_uid(*uid).map(|pod| pod.name.clone());
        assert_eq!(found, Some(format!("pod-{number}")), "{uid:?}");
    }
    assert_eq!(reader.load().pods().len(), spellings.len());
}

/// With a single pod, every lookup is compared with it.
#[test]
fn uids_that_differ_in_a_single_digit_are_different_pods() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let uid = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    writer.upsert_pod(TestPod::plain(uid, "web")).expect("a good pod");
    for (at, digit) in uid.char_indices().filter(|(_, digit)| *digit != '-') {
        let mut other = uid.to_owned();
        other.replace_range(at..=at, if digit == '7' { "6" } else { "7" });
        assert!(reader.load().pod_by_uid(&other).is_none(), "{other}");
        assert!(writer.remove_pod_by_uid(&other).is_none(), "{other}");
    }
}

#[test]
fn a_full_name_without_exactly_one_underscore_finds_nothing() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    writer.upsert_pod(TestPod::plain("u", "bar_foo")).expect("a good pod");
    assert!(reader.load().pod_by_full_name("bar_foo").is_some());
    for bad in ["barfoo", "bar_foo_foo", "", "bar_", "_foo", "_", "bar__foo"] {
        assert!(reader.load().pod_by_full_name(bad).is_none(), "{bad:?}");
    }
}

#[test]
fn the_same_uid_many_times_in_one_batch_leaves_the_last() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let versions = (0..MANY).map(|n| Operation::Upsert(TestPod::plain("u", &format!("pod-{n}"))));
    assert!(writer.apply(versions).refused.is_empty());
    assert_eq!(reader.load().generation(), 1);
    assert_eq!(reader.load().pod_by_uid("u").expect("u").name, format!("pod-{}", MANY - 1));
    assert!(reader.load().pod_by_full_name("pod-0_default").is_none());
}

#[test]
fn a_hundred_thousand_pods_and_mirrors_of_one_full_name_are_added_and_removed() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let pods = (0..MANY).map(|n| Operation::Upsert(TestPod::plain(&format!("u{n:06}"), "web")));
    let mirrors = (0..MANY).map(|n| Operation::Upsert(TestPod::mirror(&format!("m{n:06}"), "web", "x")));
    assert!(writer.apply(pods.chain(mirrors)).refused.is_empty());
    let last = format!("u{:06}", MANY - 1);
    assert_eq!(reader.load().translate_pod_uid("m000000"), &*last);
    assert_eq!(reader.load().translate_pod_uid("m099999"), &*last);

    let _ = writer.apply((1..MANY).rev().map(|n| Operation::Remove((*format!("u{n:06}")).into())));
    assert_eq!(reader.load().pod_by_full_name("web_default").expect("the last one").uid, "u000000");
    let _ = writer.apply((0..MANY - 1).map(|n| Operation::Remove((*format!("m{n:06}")).into())));
    assert_eq!(uids(reader.load().mirror_pods()), ["m099999"]);
    assert_eq!(reader.load().translate_pod_uid("m099999"), "u000000");
}

#[test]
fn a_hundred_thousand_removals_of_unknown_pods_change_nothing() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    writer.upsert_pod(TestPod::plain("u", "web")).expect("a good pod");
    let applied = writer.apply((0..MANY).map(|n| Operation::Remove((*format!("x{n}")).into())));
    assert!(!applied.published);
    assert_eq!(reader.load().generation(), 1);
}
