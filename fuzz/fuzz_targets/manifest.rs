//! Any bytes as a manifest, from a file and from a URL: no panic, the same result twice, and every decoded
//! pod is accepted by the index as a static pod and found again.
#![no_main]

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use libfuzzer_sys::fuzz_target;
use pod_index_kubelet::sources::NodeName;
use pod_index_kubelet::sources::manifest::{self, Origin};
use pod_index::{CONFIG_HASH_ANNOTATION, PodMeta, is_mirror_pod, is_static_pod};

fuzz_target!(|data: &[u8]| {
    let node = NodeName::new("Node-1");
    for origin in [Origin::File(Path::new("/pods/a.yaml")), Origin::Url("http://localhost/pods")] {
        let decoded = manifest::decode(data, origin, &node);
        // Only a URL may serve a list, and only a list may be empty.
        let nothing = decoded.pods.is_empty() && decoded.problems.is_empty();
        assert!(!nothing || matches!(origin, Origin::Url(_)), "a file holds a pod or has a problem");
        for problem in &decoded.problems {
            assert!(!problem.to_string().is_empty());
        }
        let again = manifest::decode(data, origin, &node);
        assert_eq!(decoded.problems.len(), again.problems.len());
        assert_eq!(uids(&decoded.pods), uids(&again.pods), "the same bytes, the same UIDs");

        let (mut writer, reader) = pod_index::new::<Pod>();
        for pod in decoded.pods {
            assert!(is_static_pod(&pod) && !is_mirror_pod(&pod));
            assert_eq!(pod.annotation(CONFIG_HASH_ANNOTATION), Some(pod.uid()), "the hash is the UID");
            let uid = pod.uid().to_owned();
            writer.upsert_pod(pod).expect("what is decoded can be indexed");
            assert!(reader.load().pod_by_uid(uid.as_str()).is_some());
        }
    }
});

fn uids(pods: &[Pod]) -> Vec<&str> {
    pods.iter().map(PodMeta::uid).collect()
}
