//! The questions that the kubelet asks of a pod by itself: static? a mirror? the mirror of this one?

mod support;

use pod_index::{
    CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, CONFIG_SOURCE_ANNOTATION, is_mirror_pod,
    is_mirror_pod_of, is_static_pod,
};
use support::TestPod;

fn annotated(name: &str, namespace: &str, annotations: &[(&str, &str)]) -> TestPod {
    TestPod {
        uid: "u".into(),
        name: name.into(),
        namespace: namespace.into(),
        annotations: annotations.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        ..TestPod::default()
    }
}

#[test]
fn a_pod_is_static_if_it_names_a_source_other_than_the_api_server() {
    let of = |source: &str| annotated("n", "ns", &[(CONFIG_SOURCE_ANNOTATION, source)]);
    assert!(is_static_pod(&of("file")) && is_static_pod(&of("http")) && is_static_pod(&of("")));
    assert!(!is_static_pod(&of("api")));
    assert!(!is_static_pod(&annotated("n", "ns", &[(CONFIG_MIRROR_ANNOTATION, "file")])));
}

#[test]
fn a_pod_is_a_mirror_if_it_has_the_annotation_whatever_it_says() {
    assert!(is_mirror_pod(&annotated("n", "ns", &[(CONFIG_MIRROR_ANNOTATION, "")])));
    assert!(is_mirror_pod(&annotated("n", "ns", &[(CONFIG_MIRROR_ANNOTATION, "hash")])));
    assert!(!is_mirror_pod(&annotated("n", "ns", &[(CONFIG_HASH_ANNOTATION, "hash")])));
}

/// Name, namespace and hash: each alone makes it the mirror of another pod, or of an earlier version of this one.
#[test]
fn a_mirror_is_that_of_the_pod_whose_name_namespace_and_hash_it_bears() {
    let pod = annotated("web", "shop", &[(CONFIG_HASH_ANNOTATION, "hash")]);
    let mirror = |name, namespace, hash| annotated(name, namespace, &[(CONFIG_MIRROR_ANNOTATION, hash)]);
    assert!(is_mirror_pod_of(&mirror("web", "shop", "hash"), &pod));
    assert!(!is_mirror_pod_of(&mirror("db", "shop", "hash"), &pod));
    assert!(!is_mirror_pod_of(&mirror("web", "garden", "hash"), &pod));
    assert!(!is_mirror_pod_of(&mirror("web", "shop", "old"), &pod));
    assert!(!is_mirror_pod_of(&mirror("web", "shop", ""), &pod));
    assert!(!is_mirror_pod_of(&pod, &pod), "what is no mirror mirrors nothing");

    let without_hash = annotated("web", "shop", &[]);
    assert!(is_mirror_pod_of(&mirror("web", "shop", ""), &without_hash), "no hash is an empty one");
    assert!(!is_mirror_pod_of(&mirror("web", "shop", "hash"), &without_hash));
    assert!(!is_mirror_pod_of(&without_hash, &without_hash));
}
