//! Upgrade and downgrade: this version reads the checkpoints of every released version, and an earlier version
//! can read the checkpoints of this one.
//!
//! `checkpoint_support/written_by_0.1.0` holds the files that an agent of version 0.1.0 wrote on a node with an
//! API server: a pod of the API server, a static pod, and a static pod with a UID that no file name can have.
//! Add a directory for each release; never change one.

use crate::checkpoint_support;

use std::fs;
use std::path::Path;

use checkpoint_support::{Place, Run, add};
use pod_index::PodMeta;
use pod_index_kubelet::checkpoint::Which;
use pod_index_test_support::files::{self, Files};

const RELEASED: [&str; 1] = ["0.1.0"];
const PODS: [(&str, &str, &str); 3] = [
    ("95e75cfd343ab0e3e520a6f642a5c528", "kube-system/etcd-node-1", "file"),
    ("c5cb8cf4-7d6f-44ca-87d1-c67bbfbd630a", "default/web-0", "api"),
    ("odd/uid ä", "default/odd-node-1", "file"),
];

fn written_by(version: &str) -> Files {
    let directory = format!("{}/tests/checkpoint_support/written_by_{version}", env!("CARGO_MANIFEST_DIR"));
    files::read(Path::new(&directory))
}

/// A checkpoint directory with these files.
fn place(files: &Files) -> Place {
    let place = Place::new();
    fs::create_dir(place.directory()).unwrap();
    files::write(&place.directory(), files);
    place
}

#[test]
fn after_an_upgrade_all_pods_are_restored() {
    for version in RELEASED {
        let place = place(&written_by(version));
        let pods = place.restored();
        let found: Vec<_> = pods
            .values()
            .map(|pod| {
                let source = pod.annotation("kubernetes.io/config.source").unwrap();
                (pod.uid(), format!("{}/{}", pod.namespace(), pod.name()), source)
            })
            .collect();
        let expected = PODS.map(|(uid, name, source)| (uid, name.to_owned(), source));
        assert_eq!(found, expected, "{version}");
        // A field of each kind: text beyond ASCII, a quantity, a map.
        let web = &pods[PODS[1].0];
        let container = &web.spec.as_ref().unwrap().containers[0];
        assert_eq!(container.env.as_ref().unwrap()[0].value.as_deref(), Some("grüß, \"world\""));
        let requests = container.resources.as_ref().unwrap().requests.as_ref().unwrap();
        assert_eq!(requests["memory"].0, "128Mi");
        assert_eq!(web.metadata.labels.as_ref().unwrap().get("team").map(String::as_str), Some("shop"));
    }
}

#[test]
fn for_a_downgrade_the_same_pods_are_written_to_the_same_files_byte_for_byte() {
    for version in RELEASED {
        let recorded = written_by(version);
        let pods = place(&recorded).restored();
        let place = Place::new();
        let mut run = Run::start(&place.directory(), Which::All);
        run.keeps(pods.into_values().map(add));
        run.end();
        assert_eq!(
            files::read(&place.directory()),
            recorded,
            "{version} cannot read what this version writes: give the format a new version and keep this reader"
        );
    }
}
