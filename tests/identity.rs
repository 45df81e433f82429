//! Identities in events: all forms, and texts that only resemble one.

// Not in `support`, which is also used without proptest.
#[path = "support/seeded.rs"]
mod seeded;

use std::net::IpAddr;

use pod_index::identity::{Cgroup, ContainerId, ContainerLog, Identity, ParseIdentityError, PodLog};
use pod_index::{PodUid, UidRef};
use proptest::prelude::*;
use proptest::sample::select;
use seeded::seeded;

const UUID: &str = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
const ESCAPED: &str = "0f1e2d3c_4b5a_6978_8796_a5b4c3d2e1f0";
const STATIC: &str = "b400a6d5b1b1c5f4c3b2a1908f7e6d5c";
const ID: &str = "3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c3e5f0b1c";
const OTHER_ID: &str = "77777777777777777777777777777777777777777777777777777777aaaaaaaa";

#[expect(clippy::unnecessary_wraps, reason = "the same signature as the parsers")]
fn id(digits: &str) -> Option<ContainerId> {
    Some(digits.parse().expect("64 digits"))
}

/// The pod's UID and the container's ID, as text.
fn parsed_path(path: &str) -> Option<(String, String)> {
    Cgroup::from_path(path).map(text)
}

fn text(cgroup: Cgroup) -> (String, String) {
    let uid = cgroup.pod_uid.map(|uid| uid.to_string());
    let id = cgroup.container_id.map(|id| id.to_string());
    (uid.unwrap_or_default(), id.unwrap_or_default())
}

#[expect(clippy::unnecessary_wraps, reason = "the same signature as the parsers")]
fn pair(uid: &str, id: &str) -> Option<(String, String)> {
    Some((uid.to_owned(), id.to_owned()))
}

#[test]
fn a_cgroup_path_of_either_driver_names_the_pod_and_the_container() {
    let systemd = |class: &str, uid: &str| {
        if class.is_empty() {
            format!("/kubepods.slice/kubepods-pod{uid}.slice")
        } else {
            format!("/kubepods.slice/kubepods-{class}.slice/kubepods-{class}-pod{uid}.slice")
        }
    };
    for class in ["", "burstable", "besteffort"] {
        let pod = systemd(class, ESCAPED);
        for (below, container) in [
            (format!("/cri-containerd-{ID}.scope"), ID),
            (format!("/crio-{ID}.scope"), ID),
            (format!("/docker-{ID}.scope"), ID),
            (format!("/crio-conmon-{ID}.scope"), ""),
            (format!("/cri-containerd-{ID}.scope/init.scope"), ID),
            (format!("/cri-containerd-{ID}.scope/payload/deep/er"), ID),
            (format!("/crio-{ID}.scope/container (deleted)"), ID),
            (String::new(), ""),
            ("/".to_owned(), ""),
            (" (deleted)".to_owned(), ""),
        ] {
            assert_eq!(parsed_path(&format!("{pod}{below}")), pair(UUID, container), "{class} {below}");
        }
        // A static pod's UID has no hyphens; a UID set by a manifest may have any form.
        let pod = systemd(class, STATIC);
        assert_eq!(parsed_path(&format!("{pod}/crio-{ID}.scope")), pair(STATIC, ID));
        assert_eq!(parsed_path(&systemd(class, "my_own")), pair("my-own", ""));

        let class = if class.is_empty() { String::new() } else { format!("/{class}") };
        for uid in [UUID, STATIC, "my-own", "under_score"] {
            let pod = format!("/kubepods{class}/pod{uid}");
            assert_eq!(parsed_path(&format!("{pod}/{ID}")), pair(uid, ID));
            assert_eq!(parsed_path(&format!("{pod}/crio-{ID}")), pair(uid, ID));
            assert_eq!(parsed_path(&format!("{pod}/crio-conmon-{ID}")), pair(uid, ""));
            assert_eq!(parsed_path(&format!("{pod}/{ID}/sub/cgroup (deleted)")), pair(uid, ID));
            assert_eq!(parsed_path(&pod), pair(uid, ""));
        }
    }
}

#[test]
fn if_only_the_kubelet_uses_systemd_one_element_names_both() {
    for class in ["", "-burstable", "-besteffort"] {
        let element = format!("kubepods{class}-pod{ESCAPED}.slice:cri-containerd:{ID}");
        for prefix in ["", "/", "/system.slice/containerd.service/", "/kubepods.slice/"] {
            assert_eq!(parsed_path(&format!("{prefix}{element}")), pair(UUID, ID), "{prefix}");
        }
        assert_eq!(parsed_path(&format!("/{element}/init.scope")), pair(UUID, ID));
        assert_eq!(parsed_path(&format!("/kubepods{class}-pod{STATIC}.slice:crio:{ID}")), pair(STATIC, ID));
    }
    assert_eq!(parsed_path(&format!("/kubepods-pod{ESCAPED}.slice:cri-containerd:{}", &ID[..12])), None);
    assert_eq!(parsed_path(&format!("/kubepods-pod{ESCAPED}.slice:{ID}")), None);
}

#[test]
fn a_cgroup_path_may_have_any_prefix() {
    for prefix in [
        "",
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/memory",
        "/..",
        "/../..",
        "/../../../..",
        "/docker/node/kubelet",
    ] {
        let path = format!("{prefix}/kubepods/besteffort/pod{UUID}/{ID}");
        assert_eq!(parsed_path(&path), pair(UUID, ID), "{path}");
        let path = format!(
            "{prefix}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/\
             kubelet-kubepods-burstable-pod{ESCAPED}.slice/cri-containerd-{ID}.scope"
        );
        assert_eq!(parsed_path(&path), pair(UUID, ID), "{path}");
    }
    // A node that is itself a container: the result is the pod, not the node's container.
    let path = format!("/docker/{OTHER_ID}/kubelet/kubepods/burstable/pod{UUID}/{ID}");
    assert_eq!(parsed_path(&path), pair(UUID, ID));
    // In a cgroup namespace, another container of the same pod appears without the pod.
    assert_eq!(parsed_path(&format!("/../cri-containerd-{ID}.scope")), pair("", ID));
    assert_eq!(parsed_path(&format!("/../{ID}/payload")), pair("", ID));
}

#[test]
fn the_outermost_pod_counts_because_a_container_names_what_is_below_it() {
    let path = format!("/kubepods/pod{UUID}/{ID}/kubepods/burstable/pod{STATIC}/{OTHER_ID}");
    assert_eq!(parsed_path(&path), pair(UUID, ID));
    let path = format!("/kubepods/pod{UUID}/payload/{OTHER_ID}");
    assert_eq!(parsed_path(&path), pair(UUID, ""), "no container is further down");
    let path = format!("/system.slice/docker-{ID}.scope/{OTHER_ID}");
    assert_eq!(parsed_path(&path), pair("", ID));
}

#[test]
fn paths_that_only_resemble_a_pods_cgroup_are_rejected() {
    for path in [
        "",
        "/",
        "0::/",
        "/init.scope",
        "/system.slice/containerd.service",
        "/user.slice/user-1000.slice/podman-1.scope",
        "/podruntime.slice",
        &format!("/pod{UUID}/{}", &ID[..63]),
        "/kubepods/pod",
        "/kubepods/burstable/pod",
        &format!("/kubepods/guaranteed/pod{UUID}"),
        &format!("/kubepods/burstable/other/pod{UUID}"),
        &format!("/notkubepods/pod{UUID}"),
        "/kubepods.slice/kubepods-pod.slice",
        &format!("/mykubepods-pod{ESCAPED}.slice"),
        &format!("/kubepods-pod{ESCAPED}.slices"),
        &format!("/kubepods-other-pod{ESCAPED}.slice"),
        // A hyphen in a slice's name starts another slice.
        &format!("/kubepods-pod{UUID}.slice"),
        // No kernel writes `..` after a name, or NUL.
        &format!("/kubepods/pod{UUID}/../pod{STATIC}/{ID}"),
        &format!("/kubepods/pod{UUID}/{ID}/.."),
        &format!("/kubepods/pod{UUID}\0/{ID}"),
        // 12 digits, upper case, 65 digits, another runtime's scope.
        &format!("/{}", &ID[..12]),
        &format!("/{}", ID.to_uppercase()),
        &format!("/{ID}0"),
        &format!("/libpod-{ID}.scope"),
        // One runtime, not two.
        &format!("/kubepods-pod{ESCAPED}.slice:a:b:{ID}"),
        &format!("/crio-conmon-{ID}.scope"),
    ] {
        assert_eq!(Cgroup::from_path(path), None, "{path}");
    }
    let path = format!("/kubepods/pod{UUID}/{ID}/{}", "x/".repeat(1 << 19));
    assert_eq!(Cgroup::from_path(&path), None, "a mebibyte");
    let long = |length: usize| {
        let path = format!("/kubepods/pod{UUID}/{ID}/");
        format!("{path}{}", "x".repeat(length - path.len()))
    };
    assert_eq!(parsed_path(&long(4096)), pair(UUID, ID), "the kernel's longest path");
    assert_eq!(parsed_path(&long(4097)), None, "one byte longer");
    let path = format!("/kubepods/pod{UUID}/{}", &ID[..12]);
    assert_eq!(parsed_path(&path), pair(UUID, ""), "the pod is known although the container is not");
}

#[test]
fn the_lines_of_proc_pid_cgroup_are_cut_at_their_first_two_colons() {
    let parsed = |contents: &str| Cgroup::from_proc(contents.as_bytes()).map(text);
    let v2 = format!("0::/kubepods.slice/kubepods-pod{ESCAPED}.slice/crio-{ID}.scope\n");
    assert_eq!(parsed(&v2), pair(UUID, ID));
    assert_eq!(
        parsed(&format!("0::/../../kubepods.slice/kubepods-pod{ESCAPED}.slice (deleted)\n")),
        pair(UUID, "")
    );
    let mixed =
        format!("0::/system.slice/containerd.service/kubepods-pod{ESCAPED}.slice:cri-containerd:{ID}");
    assert_eq!(parsed(&mixed), pair(UUID, ID));

    let v1 = format!(
        "12:cpuset:/kubepods/burstable/pod{UUID}/{ID}\n11:cpu,cpuacct:/kubepods/burstable/pod{UUID}/{ID}\n\
         1:name=systemd:/kubepods/burstable/pod{UUID}/{ID}\n"
    );
    assert_eq!(parsed(&v1), pair(UUID, ID));
    let hybrid = format!("5:misc:/\n1:name=systemd:/user.slice\n0::/\n4:memory:/kubepods/pod{STATIC}/{ID}\n");
    assert_eq!(parsed(&hybrid), pair(STATIC, ID));
    // The most specific line counts, in any position.
    let some =
        format!("3:pids:/{OTHER_ID}\n2:cpu:/kubepods/pod{UUID}\n1:memory:/kubepods/pod{UUID}/{ID}\n0::/\n");
    assert_eq!(parsed(&some), pair(UUID, ID));

    // The first of equally specific lines counts.
    let two = format!("2:cpu:/kubepods/pod{UUID}/{ID}\n1:memory:/kubepods/pod{STATIC}/{OTHER_ID}\n");
    assert_eq!(parsed(&two), pair(UUID, ID));

    for nothing in [
        "",
        "0::/",
        "0::/\n",
        "0:/kubepods/podx",
        ":::",
        "a::/kubepods/podx",
        "::/kubepods/podx",
        "0::kubepods/podx",
    ] {
        assert_eq!(parsed(nothing), None, "{nothing:?}");
    }
    let mut bytes = b"1:cpu:/\xff\xfe/kubepods/podx\n".to_vec();
    assert_eq!(Cgroup::from_proc(&bytes), None, "not text");
    bytes.extend_from_slice(v2.as_bytes());
    assert_eq!(Cgroup::from_proc(&bytes).map(text), pair(UUID, ID), "but no other line belongs to it");

    // A container may create such names below its own cgroup. The end of a cut name must not count as a container ID.
    let lines = |rest: &[u8]| [format!("0::/kubepods/pod{UUID}/").as_bytes(), rest].concat();
    let (inside, cut) = (lines(format!("{ID}/x\u{e9}/").as_bytes()), lines(ID.as_bytes()));
    assert_eq!(Cgroup::from_proc(&[&inside, &b"\xff\n"[..]].concat()).map(text), pair(UUID, ID));
    assert_eq!(Cgroup::from_proc(&[&cut, &b"\xff/y\n"[..]].concat()).map(text), pair(UUID, ""));
}

#[test]
fn the_path_of_a_log_file_names_everything() {
    let log = |uid: &str, file: &str| format!("/var/log/pods/kube-system_etcd-node-1_{uid}/etcd/{file}");
    for uid in [UUID, STATIC, "my_own_uid"] {
        for (file, attempt) in [
            ("0.log", 0),
            ("17.log", 17),
            ("4294967295.log", u32::MAX),
            ("3.log.20261122-065442", 3),
            ("3.log.20261122-065442.gz", 3),
            ("3.log.20261122-065442.tmp", 3),
        ] {
            let path = log(uid, file);
            let found = PodLog::from_path(&path).expect("a log file");
            assert_eq!((found.namespace, found.name), ("kube-system", "etcd-node-1"), "{path}");
            assert_eq!((found.pod_uid, found.container, found.attempt), (uid, "etcd", attempt), "{path}");
        }
    }
    // Any root directory.
    for root in ["", "/", "/data/pod_logs/", "/var/log/pods/a_b_c/d/"] {
        let path = format!("{root}shop_web_u/c/1.log");
        assert_eq!(PodLog::from_path(&path).map(|log| (log.name, log.attempt)), Some(("web", 1)), "{path}");
    }
    for path in [
        "",
        "0.log",
        "c/0.log",
        "/var/log/pods/shop_web_u/c",
        "/var/log/pods/shop_web_u/c/",
        "/var/log/pods/shop_web/c/0.log",
        "/var/log/pods/shop__u/c/0.log",
        "/var/log/pods/_web_u/c/0.log",
        "/var/log/pods/shop_web_/c/0.log",
        "/var/log/pods/shop_web_u//0.log",
        "/var/log/pods/shop_web_u/../0.log",
        "/var/log/pods/../shop_web_u/c/0.log",
        "/var/log/pods/shop_web_u\0/c/0.log",
        &log(UUID, ".log"),
        &log(UUID, "+1.log"),
        &log(UUID, "-1.log"),
        &log(UUID, "x.log"),
        &log(UUID, "4294967296.log"),
        &log(UUID, "0.logs"),
        &log(UUID, "0.log.gz"),
        &log(UUID, "0.log.20261122-065442.zst"),
        &log(UUID, "0.log.20261122-06544"),
        &log(UUID, "0.log.20261122x065442"),
        &log(UUID, "0.log.20261122-065442.gz.tmp"),
    ] {
        assert_eq!(PodLog::from_path(path), None, "{path:?}");
    }
}

#[test]
fn the_directories_of_a_pod_name_it() {
    for (path, expected) in [
        (format!("/var/log/pods/shop_web-0_{UUID}"), Some((UUID, None))),
        (format!("/var/log/pods/shop_web-0_{UUID}/"), Some((UUID, None))),
        (format!("/var/log/pods/shop_web-0_{UUID}/nginx"), Some((UUID, Some("nginx")))),
        (format!("/data/logs/shop_web-0_{STATIC}/nginx/"), Some((STATIC, Some("nginx")))),
        ("/var/log/pods/shop_web-0_my_own_uid/nginx/".to_owned(), Some(("my_own_uid", Some("nginx")))),
        ("/data/logs/shop_web-0_my_own_uid/nginx/".to_owned(), None),
        (format!("/var/lib/kubelet/pods/{UUID}"), Some((UUID, None))),
        (format!("/var/lib/kubelet/pods/{STATIC}/etc-hosts"), Some((STATIC, None))),
        (format!("/var/lib/kubelet/pods/{UUID}/containers/nginx/3e5f0b1c"), Some((UUID, Some("nginx")))),
        // A container chooses the names in its volumes.
        (
            format!("/var/lib/kubelet/pods/{UUID}/volumes/kubernetes.io~empty-dir/v/pods/{STATIC}"),
            Some((UUID, None)),
        ),
        ("/var/lib/kubelet/pods".to_owned(), None),
        ("/var/lib/kubelet/pods/plugins".to_owned(), None),
        (format!("/var/lib/kubelet/plugins/{UUID}"), None),
        (format!("/var/log/pods/_web-0_{UUID}/nginx"), None),
        (format!("/var/log/pods/x/../shop_web-0_{UUID}"), None),
    ] {
        let found = match Identity::parse(&path) {
            Ok(Identity::PodDirectory { pod_uid, container }) => Some((pod_uid.to_string(), container)),
            Err(_) => None,
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(found, expected.map(|(uid, container)| (uid.to_owned(), container)), "{path}");
    }
}

#[test]
fn a_link_to_a_log_file_gives_the_parts_that_were_not_cut() {
    let whole = |log: ContainerLog<'_>| {
        (
            log.name.to_owned(),
            log.namespace.map(str::to_owned),
            log.container.map(str::to_owned),
            log.container_id,
        )
    };
    let some = |text: &str| Some(text.to_owned());
    let path = format!("/var/log/containers/web-0_shop_side-car-{ID}.log");
    let expected = ("web-0".to_owned(), some("shop"), some("side-car"), id(ID));
    assert_eq!(ContainerLog::from_path(&path).map(whole), Some(expected));

    // The kubelet cuts the whole name to 251 bytes.
    let cut = |name: &str, namespace: &str, container: &str| {
        let stem = format!("{name}_{namespace}_{container}-{ID}");
        assert!(stem.len() >= 251, "{}", stem.len());
        format!("/var/log/containers/{}.log", &stem[..251])
    };
    let long = "n".repeat(253);
    for (name, namespace, container, expected) in [
        // Exactly at the limit: nothing was cut.
        (&long[..178], "shop", "cc", Some((some("shop"), some("cc"), id(ID)))),
        // If a digit of the ID is missing, the end of the container's name is unknown.
        (&long[..179], "shop", "cc", Some((some("shop"), None, None))),
        (&long[..240], "shop", "nginx", Some((some("shop"), None, None))),
        (&long[..245], "shop", "nginx", Some((some("shop"), None, None))),
        (&long[..246], "shop", "nginx", Some((None, None, None))),
        (&long[..250], "shop", "nginx", Some((None, None, None))),
        (&long[..251], "shop", "nginx", None),
        (&long[..253], "shop", "nginx", None),
    ] {
        let path = cut(name, namespace, container);
        let found = ContainerLog::from_path(&path).map(whole);
        let expected = expected.map(|(namespace, container, id)| (name.to_owned(), namespace, container, id));
        assert_eq!(found, expected, "{} bytes", name.len());
    }
    // A name one byte shorter than the limit was not cut.
    let stem = format!("{}_shop_nginx", &long[..239]);
    for (more, is_link) in [("", false), ("-", true), ("-3", false)] {
        assert_eq!(
            ContainerLog::from_path(&format!("{stem}{more}.log")).is_some(),
            is_link,
            "{}",
            stem.len()
        );
    }
    for path in [
        "",
        ".log",
        &format!("web_shop_c-{ID}"),
        &format!("web_shop_c-{}.log", &ID[..12]),
        &format!("web_shop_c-{}.log", &ID[..63]),
        &format!("_shop_c-{ID}.log"),
        &format!("web__c-{ID}.log"),
        &format!("web_shop_-{ID}.log"),
        &format!("web_shop_a_c-{ID}.log"),
        &format!("/var/log/../web_shop_c-{ID}.log"),
        &format!("web\0_shop_c-{ID}.log"),
        "web_shop.log",
    ] {
        assert_eq!(ContainerLog::from_path(path), None, "{path:?}");
    }
}

#[test]
fn a_container_id_is_the_same_in_every_spelling() {
    for spelling in [
        ID.to_owned(),
        format!("containerd://{ID}"),
        format!("cri-o://{ID}"),
        format!("docker://{ID}"),
        format!("cri-containerd-{ID}.scope"),
        format!("crio-{ID}.scope"),
        format!("docker-{ID}.scope"),
    ] {
        assert_eq!(spelling.parse().ok(), id(ID), "{spelling}");
        assert_eq!(Identity::parse(&spelling), Ok(Identity::ContainerId(id(ID).unwrap())), "{spelling}");
    }
    assert_eq!(id(ID).unwrap().to_string(), ID);
    for none in [
        "",
        &ID[..12],
        &ID[..63],
        &format!("{ID}0"),
        &ID.to_uppercase(),
        &format!("{}g", &ID[..63]),
        &format!("{}ä", &ID[..62]),
        &format!("://{ID}"),
        &format!("Docker://{ID}"),
        &format!("docker:/{ID}"),
        &format!("docker://docker://{ID}"),
        &format!("docker://docker-{ID}.scope"),
        &format!("crio-conmon-{ID}.scope"),
        &format!("cri-containerd-{ID}"),
        &format!("libpod-{ID}.scope"),
        &"a".repeat(1 << 20),
    ] {
        assert_eq!(none.parse::<ContainerId>(), Err(ParseIdentityError::ContainerId), "{none:.80}");
    }
}

#[test]
fn any_text_is_parsed_as_the_first_matching_identity_in_the_documented_order() {
    let uid = |text| Ok(Identity::Uid(UidRef::from(text)));
    let name = |namespace, name| Ok(Identity::Name { namespace, name });
    let ip = |text: &str| Ok(Identity::Ip(text.parse::<IpAddr>().unwrap()));
    let longest = "u".repeat(253);
    for (text, expected) in [
        (UUID, uid(UUID)),
        (STATIC, uid(STATIC)),
        ("my-own-uid", uid("my-own-uid")),
        (&ID[..12], uid(&ID[..12])),
        ("10.0.0.7", ip("10.0.0.7")),
        ("::ffff:10.0.0.7", ip("10.0.0.7")),
        ("fd00::7", ip("fd00::7")),
        ("10.0.0.256", uid("10.0.0.256")),
        ("1", Ok(Identity::Pid(1))),
        ("4194304", Ok(Identity::Pid(4_194_304))),
        ("4194305", uid("4194305")),
        ("0", uid("0")),
        ("007", uid("007")),
        ("123456789012", uid("123456789012")),
        // 32 digits, like a static pod's UID.
        ("00000000000000000000000000000042", uid("00000000000000000000000000000042")),
        ("shop/web-0", name("shop", "web-0")),
        ("web-0_shop", name("shop", "web-0")),
        ("  shop/web-0\n", name("shop", "web-0")),
        ("a_b_c", uid("a_b_c")),
        ("_b", uid("_b")),
        ("a:b_c", uid("a:b_c")),
        ("a:b/c", Err(ParseIdentityError::Unknown)),
        ("", Err(ParseIdentityError::Empty)),
        (" \n\t", Err(ParseIdentityError::Empty)),
        ("a\0b", Err(ParseIdentityError::Nul)),
        ("/", Err(ParseIdentityError::NoPod)),
        ("/system.slice/sshd.service", Err(ParseIdentityError::NoPod)),
        ("0::/", Err(ParseIdentityError::NoPod)),
        ("0::/\n1:cpu:/\n", Err(ParseIdentityError::NoPod)),
        ("shop/web/0", Err(ParseIdentityError::Unknown)),
        ("shop/", Err(ParseIdentityError::Unknown)),
        ("docker://abc", Err(ParseIdentityError::Unknown)),
        ("two words", Err(ParseIdentityError::Unknown)),
        ("\u{1b}[31mred", Err(ParseIdentityError::Unknown)),
        ("sh\u{1b}op/web", Err(ParseIdentityError::Unknown)),
        (&longest, uid(&longest)),
        (&"u".repeat(254), Err(ParseIdentityError::Unknown)),
        (&"u".repeat(1 << 20), Err(ParseIdentityError::TooLong)),
    ] {
        assert_eq!(Identity::parse_lenient(text), expected, "{text:.80}");
        let is_any_word = matches!(expected, Ok(Identity::Uid(_)))
            && !text.trim_matches(|char: char| char.is_ascii_hexdigit() || char == '-').is_empty()
            || ["4194305", "0", "007", "123456789012", &ID[..12]].contains(&text);
        let strict = if is_any_word { Err(ParseIdentityError::Unknown) } else { expected };
        assert_eq!(Identity::parse(text), strict, "{text:.80}");
    }
    // What looks like something else, or nearly like a UUID, is no UID.
    for text in
        ["10.0.0.1:80", "web-0", "3e5f0b1c3e5f", &UUID[1..], &format!("{UUID}0"), &UUID.replace('-', "_")]
    {
        assert_eq!(Identity::parse(text), Err(ParseIdentityError::Unknown), "{text}");
    }
    for text in [UUID.to_uppercase(), STATIC.to_uppercase()] {
        assert!(
            matches!(Identity::parse(&text), Ok(Identity::Uid(uid)) if uid.to_string() == text),
            "{text}"
        );
    }

    let cgroup = format!("/kubepods/pod{UUID}/{ID}");
    let slice = format!("kubepods-pod{ESCAPED}.slice");
    let mixed = format!("{slice}:cri-containerd:{ID}");
    let lines = format!("1:cpu:/\n0::{cgroup}\n");
    for (text, container) in [(&cgroup, ID), (&slice, ""), (&mixed, ID), (&lines, ID)] {
        let Ok(Identity::Cgroup(cgroup)) = Identity::parse(text) else { panic!("{text}") };
        assert_eq!(Some(self::text(cgroup)), pair(UUID, container), "{text}");
    }
    let log = format!("/var/log/pods/shop_web_{UUID}/c/0.log");
    assert!(matches!(Identity::parse(&log), Ok(Identity::PodLog(log)) if log.pod_uid == UUID));
    let link = format!("web_shop_c-{ID}.log");
    assert!(matches!(Identity::parse(&link), Ok(Identity::ContainerLog(log)) if log.container_id == id(ID)));
    assert!(matches!(Identity::parse(&log[1..]), Ok(Identity::PodLog(_))));
}

#[test]
fn an_error_says_what_was_expected() {
    assert!(ParseIdentityError::ContainerId.to_string().contains("64 lower-case hex digits"));
    assert!(ParseIdentityError::Unknown.to_string().starts_with("not a UID, container ID, cgroup, log path"));
}

/// A name that the API server accepts.
fn label() -> impl Strategy<Value = String> {
    "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?"
}

/// UIDs that a path contains unchanged: of every form, but without underscores.
fn uids() -> impl Strategy<Value = String> {
    let uuid = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";
    prop_oneof![3 => uuid.prop_map(String::from), 2 => "[0-9a-f]{32}", 1 => label()]
}

proptest! {
    #![proptest_config(seeded(1_000))]

    #[test]
    fn generated_cgroup_paths_are_parsed_back(
        uid in uids(),
        digits in "[0-9a-f]{64}",
        class in select(vec!["", "burstable", "besteffort"]),
        prefix in select(vec!["", "/..", "/../..", "/sys/fs/cgroup", "/kubelet.slice", "/docker/x"]),
        parent in select(vec!["", "kubelet-", "a-b-"]),
        below in select(vec!["", "/", "/init.scope", "/payload/a", " (deleted)"]),
        runtime in select(vec!["cri-containerd-", "crio-", "docker-"]),
    ) {
        let (dash, slash) = if class.is_empty() { ("", "") } else { ("-", "/") };
        let escaped = uid.replace('-', "_");
        let expected = pair(&uid, &digits);
        let slice = format!("{parent}kubepods{dash}{class}-pod{escaped}.slice");
        for path in [
            format!("{prefix}/{parent}kubepods.slice/{slice}/{runtime}{digits}.scope{below}"),
            format!("{prefix}/{slice}:cri-containerd:{digits}{below}"),
            format!("{prefix}/kubepods{slash}{class}/pod{uid}/{digits}{below}"),
            format!("{prefix}/kubepods{slash}{class}/pod{uid}/crio-{digits}{below}"),
        ] {
            prop_assert_eq!(parsed_path(&path), expected.clone(), "{}", path);
            let line = format!("7:cpu,cpuacct:/\n0::{path}\n");
            prop_assert_eq!(Cgroup::from_proc(line.as_bytes()).map(text), expected.clone());
            let cgroup = Cgroup::from_path(&path).unwrap();
            prop_assert_eq!(cgroup.pod_uid.as_ref(), Some(&PodUid::from(uid.as_str())));
            prop_assert_eq!(Identity::parse(&path), Ok(Identity::Cgroup(cgroup)));
        }
    }

    #[test]
    fn generated_log_paths_are_parsed_back(
        parts in (label(), label(), uids(), label()),
        attempt in any::<u32>(),
        rotated in select(vec!["", ".20261122-065442", ".20261122-065442.gz", ".20261122-065442.tmp"]),
        digits in "[0-9a-f]{64}",
    ) {
        let (namespace, name, uid, container) = &parts;
        let path = format!("/var/log/pods/{namespace}_{name}_{uid}/{container}/{attempt}.log{rotated}");
        let Ok(Identity::PodLog(log)) = Identity::parse(&path) else { panic!("{path}") };
        prop_assert_eq!((log.namespace, log.name, log.pod_uid), (&**namespace, &**name, &**uid));
        prop_assert_eq!((log.container, log.attempt), (&**container, attempt));

        let path = format!("/var/log/containers/{name}_{namespace}_{container}-{digits}.log");
        let Ok(Identity::ContainerLog(log)) = Identity::parse(&path) else { panic!("{path}") };
        prop_assert_eq!((log.name, log.namespace), (&**name, Some(&**namespace)));
        prop_assert_eq!((log.container, log.container_id), (Some(&**container), id(&digits)));
    }

    /// Pieces of all forms, in any order: no panic, and every result is part of the text.
    #[test]
    fn no_text_makes_a_parser_panic_or_invent_a_result(
        pieces in proptest::collection::vec(prop_oneof![
            4 => select(vec![
                "/", "..", "kubepods", "burstable", "besteffort", ".slice", ".scope", ".log", "-pod", "pod", "-", "_", ":", "0::/",
                "://", "crio-", "docker-", "cri-containerd-", "conmon-", ID, OTHER_ID, UUID, ESCAPED, STATIC, " (deleted)", "\n", "0",
                ".20261122-065442", ".gz",
            ]).prop_map(String::from),
            1 => any::<String>(),
        ], 0..14),
    ) {
        let whole = pieces.concat();
        let holds = |part: &str| assert!(whole.contains(part), "{part:?} is not in {whole:?}");
        let _ = whole.parse::<ContainerId>();
        let _ = Identity::parse(&whole);
        for cgroup in [Cgroup::from_path(&whole), Cgroup::from_proc(whole.as_bytes())].into_iter().flatten() {
            let (uid, id) = text(cgroup);
            prop_assert!(whole.replace('_', "-").contains(&uid.replace('_', "-")));
            holds(&id);
        }
        if let Some(log) = PodLog::from_path(&whole) {
            [log.namespace, log.name, log.pod_uid, log.container].into_iter().for_each(holds);
        }
        if let Some(log) = ContainerLog::from_path(&whole) {
            holds(log.name);
            log.namespace.into_iter().chain(log.container).for_each(holds);
        }
    }
}
