//! The kubelet's predicates for a single pod: static, mirror, mirror of a given pod.

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
fn a_pod_is_a_mirror_if_it_has_the_annotation_with_any_value() {
    assert!(is_mirror_pod(&annotated("n", "ns", &[(CONFIG_MIRROR_ANNOTATION, "")])));
    assert!(is_mirror_pod(&annotated("n", "ns", &[(CONFIG_MIRROR_ANNOTATION, "hash")])));
    assert!(!is_mirror_pod(&annotated("n", "ns", &[(CONFIG_HASH_ANNOTATION, "hash")])));
}

/// Name, namespace and hash: if any of them differs, it is the mirror of another pod or version.
#[test]
fn a_mirror_belongs_to_the_pod_with_its_name_namespace_and_hash() {
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
