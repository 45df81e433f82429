//! Lookups by container ID, IP and custom keys: contested keys, limits, waiting, identities.

mod support;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pod_index::identity::{ContainerId, Identity};
use pod_index::{
    CustomKeyKind, FoundBy, KeyCounts, MAX_KEY_LENGTH, MAX_KEYS_PER_POD, Operation, PodKeys, PodMeta,
    WaitError,
};
use support::{Named, TestKeys, TestPod, uids};

const IP: &str = "10.0.0.7";
const OWNER: CustomKeyKind = CustomKeyKind(1);

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// A pod that claims the IP, a container ID and a key, with its creation time.
fn claims(uid: &str, created: i64) -> Arc<TestPod> {
    TestPod::plain(uid, uid).with_keys(TestKeys {
        containers: vec![(format!("of-{uid}"), format!("containerd://{}", id('a')))],
        ips: vec![IP.to_owned()],
        custom: vec![(OWNER.0, b"job".to_vec())],
        created: Some(created),
        ..TestKeys::default()
    })
}

#[test]
fn an_update_that_only_renames_the_container_is_found_under_the_new_name() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    // Of one length, so that only the letters differ.
    for name in ["app", "web", "job"] {
        let keys = TestKeys { containers: vec![(name.to_owned(), id('a'))], ..TestKeys::default() };
        writer.upsert_pod(TestPod::plain("u", "u").with_keys(keys)).expect("a good pod");
        assert_eq!(reader.load().pod_by_container_id(id('a')).expect("by ID").container, Some(name));
    }
}

#[test]
fn a_pod_whose_keys_are_all_ignored_counts_while_it_is_stored() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let ignored = || TestKeys { ips: vec!["not-an-ip".to_owned()], ..TestKeys::default() };
    writer.upsert_pod(TestPod::plain("u", "u").with_keys(ignored())).expect("a good pod");
    assert_eq!(reader.load().ignored_key_count(), 1);
    writer.upsert_pod(TestPod::plain("u", "u")).expect("a good pod");
    assert_eq!(reader.load().ignored_key_count(), 0);
    writer.upsert_pod(TestPod::plain("u", "u").with_keys(ignored())).expect("a good pod");
    writer.remove_pod_by_uid("u").expect("a known pod");
    assert_eq!(reader.load().ignored_key_count(), 0);
}

#[test]
fn neither_a_key_that_pods_share_nor_a_finished_pods_ip_counts_as_a_contended_ip() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let replica = |uid: &str, ip: &str, finished| {
        let keys = TestKeys {
            ips: vec![ip.to_owned()],
            custom: vec![(OWNER.0, b"job".to_vec())],
            finished,
            ..TestKeys::default()
        };
        TestPod::plain(uid, uid).with_keys(keys)
    };
    let counts = || reader.load().key_counts();
    for (uid, ip) in [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("c", "10.0.0.3")] {
        writer.upsert_pod(replica(uid, ip, false)).expect("a good pod");
    }
    let mut expected = KeyCounts::default();
    expected.ips = 3;
    expected.custom_keys = 1;
    expected.contended_custom_keys = 2;
    assert_eq!(counts(), expected);

    // Its IP has gone to the next pod, and is still in its status.
    writer.upsert_pod(replica("b", "10.0.0.1", true)).expect("a good pod");
    expected.ips = 2;
    assert_eq!(counts(), expected);
    // Two pods that run name one IP.
    writer.upsert_pod(replica("b", "10.0.0.1", false)).expect("a good pod");
    expected.contended_ips = 1;
    assert_eq!(counts(), expected);
    writer.remove_pod_by_uid("a").expect("a known pod");
    expected.contended_ips = 0;
    expected.contended_custom_keys = 1;
    assert_eq!(counts(), expected);
}

#[test]
fn a_batch_that_cancels_out_in_its_keys_is_not_published() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    writer.upsert_pod(claims("a", 1)).expect("a good pod");
    let applied = writer.apply([Operation::Upsert(claims("b", 2)), Operation::Remove("b".into())]);
    assert!(!applied.published);
    let snapshot = reader.load();
    assert_eq!(uids(snapshot.pods_by_custom_key(OWNER, b"job")), ["a"]);
    assert_eq!(snapshot.pod_by_container_id(id('a')).expect("by ID").container, Some("of-a"));
    assert_eq!(snapshot.pod_by_ip(IP.parse().expect("an IP")).expect("by IP").uid, "a");
}

#[test]
fn many_pods_of_one_key_are_found_in_order_and_removed() {
    const MANY: usize = 3_000;
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let pods = (0..MANY).map(|n| {
        let keys = TestKeys {
            custom: vec![(OWNER.0, b"namespace".to_vec())],
            created: Some(i64::try_from(n * 7919 % MANY).expect("small")),
            ..TestKeys::default()
        };
        TestPod::plain(&format!("u{n}"), &format!("p{n}")).with_keys(keys)
    });
    assert!(writer.set_pods(pods).refused.is_empty());
    let snapshot = reader.snapshot();
    let created: Vec<_> = snapshot
        .pods_by_custom_key(OWNER, b"namespace")
        .map(|pod| pod.keys.created.expect("a time"))
        .collect();
    assert_eq!(created.len(), MANY);
    assert!(created.is_sorted_by(|one, other| one > other));
    for n in 0..MANY {
        writer.remove_pod_by_uid(&format!("u{n}")).expect("a known pod");
    }
    assert_eq!(reader.load().key_counts(), KeyCounts::default());
    assert_eq!(snapshot.pods_by_custom_key(OWNER, b"namespace").count(), MANY);
}

#[test]
fn only_the_first_thousand_of_a_million_keys_are_kept_and_no_other_pod_is_affected() {
    let (mut writer, reader) = pod_index::new();
    let greedy =
        |keys: &mut PodKeys<'_>| (0..1_000_000u32).for_each(|n| keys.custom_key(OWNER, n.to_be_bytes()));
    writer.upsert_pod(Named("greedy", greedy)).expect("it is stored");
    let snapshot = reader.load();
    assert_eq!(snapshot.key_counts().custom_keys, MAX_KEYS_PER_POD);
    assert_eq!(snapshot.ignored_key_count(), 1_000_000 - MAX_KEYS_PER_POD);
    let last = u32::try_from(MAX_KEYS_PER_POD - 1).expect("small");
    assert_eq!(snapshot.pods_by_custom_key(OWNER, &last.to_be_bytes()).count(), 1);
    assert_eq!(snapshot.pods_by_custom_key(OWNER, &(last + 1).to_be_bytes()).count(), 0);
    assert!(snapshot.pod_by_uid("greedy").is_some());
    drop(snapshot);
    writer.remove_pod_by_uid("greedy").expect("a known pod");
    assert_eq!((reader.load().key_counts().custom_keys, reader.load().ignored_key_count()), (0, 0));
}

#[test]
fn invalid_keys_are_ignored_and_counted_and_the_pods_other_keys_are_kept() {
    let (mut writer, reader) = pod_index::new();
    let bad = |keys: &mut PodKeys<'_>| {
        keys.custom_key(OWNER, "");
        keys.custom_key(OWNER, vec![b'x'; 10 << 20]);
        keys.custom_key(OWNER, [b'x'; MAX_KEY_LENGTH + 1]);
        keys.container_id("c", &id('a')[..12]);
        keys.container_id("c", &id('A'));
        keys.container_id(&"c".repeat(10 << 20), &id('b'));
        keys.ip_text("none");
        // Valid keys.
        keys.custom_key(OWNER, [b'x'; MAX_KEY_LENGTH]);
        keys.container_id("", &id('c'));
        keys.container_id(&"n".repeat(MAX_KEY_LENGTH), &id('d'));
        keys.ip_text("::ffff:10.0.0.7");
        // An incomplete status.
        keys.container_id("waiting", "");
        keys.ip_text("");
    };
    writer.upsert_pod(Named("u", bad)).expect("it is stored");
    let snapshot = reader.load();
    assert_eq!(snapshot.ignored_key_count(), 7);
    let counts = snapshot.key_counts();
    assert_eq!((counts.container_ids, counts.ips, counts.custom_keys), (2, 1, 1));
    let contended = [counts.contended_ips, counts.contended_container_ids, counts.contended_custom_keys];
    assert_eq!(contended, [0; 3]);
    assert_eq!(snapshot.pods_by_custom_key(OWNER, b"").count(), 0);
    assert_eq!(snapshot.pods_by_custom_key(OWNER, &[b'x'; MAX_KEY_LENGTH]).count(), 1);
    for none in [&id('a')[..12], &id('A'), &id('b'), "", "containerd://"] {
        assert!(snapshot.pod_by_container_id(none).is_none(), "{none}");
    }
    assert_eq!(snapshot.pod_by_container_id(id('c')).expect("by ID").container, Some(""));
    let longest = snapshot.pod_by_container_id(id('d')).expect("by ID").container;
    assert_eq!(longest.map(str::len), Some(MAX_KEY_LENGTH));
    assert!(snapshot.pod_by_ip(IP.parse().expect("an IP")).is_some());
}

/// IDs with equal first or second halves, and custom keys whose bytes look like their kind.
#[test]
fn keys_that_look_alike_are_told_apart() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let halves = ["a".repeat(32), "b".repeat(32)];
    let ids: Vec<_> = (0..4).map(|n| format!("{}{}", halves[n / 2], halves[n % 2])).collect();
    for (n, id) in ids.iter().enumerate() {
        let keys = TestKeys {
            containers: vec![(format!("c{n}"), id.clone())],
            custom: vec![(u16::try_from(n).expect("small"), b"\0\x01".to_vec()), (7, vec![b'k'; n + 1])],
            ..TestKeys::default()
        };
        writer
            .upsert_pod(TestPod::plain(&n.to_string(), &n.to_string()).with_keys(keys))
            .expect("a good pod");
    }
    let snapshot = reader.load();
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(snapshot.pod_by_container_id(id).expect("by ID").container, Some(&*format!("c{n}")));
        let kind = CustomKeyKind(u16::try_from(n).expect("small"));
        assert_eq!(uids(snapshot.pods_by_custom_key(kind, b"\0\x01")), [n.to_string()]);
        assert_eq!(uids(snapshot.pods_by_custom_key(CustomKeyKind(7), &vec![b'k'; n + 1])), [n.to_string()]);
    }
}

#[test]
fn waiting_for_a_container_or_an_ip_ends_when_a_status_names_it() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let container: ContainerId = id('a').parse().expect("64 digits");
    let ip: std::net::IpAddr = IP.parse().expect("an IP");
    assert_eq!(reader.wait_for(ip, Instant::now()).expect_err("no pod has it"), WaitError::TimedOut);
    let far = Instant::now() + Duration::from_secs(600);
    let waiters = [
        thread::spawn({
            let reader = reader.clone();
            move || reader.wait_for(container, far)
        }),
        thread::spawn({
            let reader = reader.clone();
            move || reader.wait_for(ip, far)
        }),
    ];
    // The pod comes first, and then its status.
    writer.upsert_pod(TestPod::plain("u", "u")).expect("a good pod");
    writer.upsert_pod(claims("u", 1)).expect("a good pod");
    for waiter in waiters {
        assert_eq!(waiter.join().expect("no panic").expect("it came").uid, "u");
    }
    drop(writer);
    assert_eq!(reader.wait_for(ip, far).expect("it is there").uid, "u");
    let nobodys: ContainerId = id('b').parse().expect("64 digits");
    assert_eq!(reader.wait_for(nobodys, far).expect_err("no pod has it"), WaitError::WriterGone);
}

const UID: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const STATIC: &str = "5f4dcc3b5aa765d61d8327deb882cf99";
const MIRROR: &str = "9a8b7c6d-1111-2222-3333-444455556666";
const ORPHAN: &str = "9a8b7c6d-1111-2222-3333-000000000000";

#[test]
fn every_identity_resolves_to_its_pod() {
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let keys = |digit, ip: &str| TestKeys {
        containers: vec![("nginx".into(), format!("containerd://{}", id(digit)))],
        ips: vec![ip.into()],
        ..TestKeys::default()
    };
    let _ = writer.set_pods([
        TestPod::plain(UID, "web_shop").with_keys(keys('a', IP)),
        TestPod::fixed(STATIC, "etcd_kube-system").with_keys(keys('b', "fd00::1")),
        TestPod::mirror(MIRROR, "etcd_kube-system", STATIC),
        TestPod::mirror(ORPHAN, "proxy_kube-system", ""),
    ]);
    let snapshot = reader.load();
    let (a, b, other) = (id('a'), id('b'), id('f'));
    let escaped = UID.replace('-', "_");
    let slice = format!("/kubepods.slice/kubepods-pod{escaped}.slice");
    let unknown = "0f1e2d3c-0000-0000-0000-000000000000";
    for (text, expected) in [
        (UID.to_owned(), Some((UID, FoundBy::Uid, None))),
        (STATIC.to_owned(), Some((STATIC, FoundBy::Uid, None))),
        (MIRROR.to_owned(), Some((STATIC, FoundBy::MirrorUid, None))),
        (ORPHAN.to_owned(), Some((ORPHAN, FoundBy::MirrorUid, None))),
        (unknown.to_owned(), None),
        (a.clone(), Some((UID, FoundBy::ContainerId, Some("nginx")))),
        (format!("containerd://{b}"), Some((STATIC, FoundBy::ContainerId, Some("nginx")))),
        (other.clone(), None),
        (a[..12].to_owned(), None),
        // The UID decides, even if the container is unknown or belongs to another pod.
        (format!("{slice}/cri-containerd-{a}.scope"), Some((UID, FoundBy::Uid, Some("nginx")))),
        (format!("{slice}/cri-containerd-{other}.scope"), Some((UID, FoundBy::Uid, None))),
        (format!("{slice}/cri-containerd-{b}.scope"), Some((UID, FoundBy::Uid, None))),
        (slice.clone(), Some((UID, FoundBy::Uid, None))),
        (format!("0::/kubepods/pod{unknown}/{a}"), Some((UID, FoundBy::ContainerId, Some("nginx")))),
        (format!("0::/kubepods/pod{MIRROR}/{b}"), Some((STATIC, FoundBy::MirrorUid, Some("nginx")))),
        (format!("/../../cri-containerd-{b}.scope"), Some((STATIC, FoundBy::ContainerId, Some("nginx")))),
        (format!("/var/log/pods/shop_web_{UID}/init/0.log"), Some((UID, FoundBy::Uid, Some("init")))),
        // An earlier pod with the same name.
        (format!("/var/log/pods/shop_web_{unknown}/init/0.log"), None),
        (
            format!("/var/log/containers/web_shop_nginx-{a}.log"),
            Some((UID, FoundBy::ContainerId, Some("nginx"))),
        ),
        // The status may not have the container yet.
        (
            format!("/var/log/containers/web_shop_app-{other}.log"),
            Some((UID, FoundBy::NameOnly, Some("app"))),
        ),
        (IP.to_owned(), Some((UID, FoundBy::Ip, None))),
        (format!("::ffff:{IP}"), Some((UID, FoundBy::Ip, None))),
        ("fd00::1".to_owned(), Some((STATIC, FoundBy::Ip, None))),
        ("fd00::2".to_owned(), None),
        ("shop/web".to_owned(), Some((UID, FoundBy::Name, None))),
        ("etcd_kube-system".to_owned(), Some((STATIC, FoundBy::Name, None))),
        ("proxy_kube-system".to_owned(), Some((ORPHAN, FoundBy::Name, None))),
        ("4711".to_owned(), None),
    ] {
        let identity = Identity::parse_lenient(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let found = identity.resolve(&snapshot);
        let found = found.map(|found| (found.pod.uid(), found.by, found.container));
        assert_eq!(found, expected, "{text}");
    }
}

/// Two spellings are two UIDs; only an identity that no pod has exactly is also looked up in lower case.
#[test]
fn a_uid_in_upper_case_finds_the_pod_unless_another_has_that_very_uid() {
    const UPPER: &str = "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0";
    let (mut writer, reader) = pod_index::new::<TestPod>();
    let lower = UPPER.to_lowercase();
    writer.upsert_pod(TestPod::plain(&lower, "lower")).expect("a good pod");
    let found = |text: &str| {
        let snapshot = reader.load();
        let found = Identity::parse(text).expect("a UID").resolve(&snapshot);
        found.map(|found| (found.pod.name.clone(), found.by))
    };
    assert_eq!(found(UPPER), Some(("lower".into(), FoundBy::Uid)));
    assert!(reader.load().pod_by_uid(UPPER).is_none());
    writer.upsert_pod(TestPod::plain(UPPER, "upper")).expect("a good pod");
    assert_eq!(found(UPPER), Some(("upper".into(), FoundBy::Uid)));
    assert_eq!(found(&lower), Some(("lower".into(), FoundBy::Uid)));
    assert_eq!(
        found(&format!("/var/lib/kubelet/pods/{lower}/volumes")),
        Some(("lower".into(), FoundBy::Uid))
    );
}
