//! The tests of the index, in one program. Each program of its own would be linked once more, with all of Kubernetes'
//! types, by everyone who runs the tests.
//!
//! Four files stay programs of their own, because they change what a whole process has: `memory` and `no_allocation`
//! replace its allocator, `no_shared_writes` copies it, and `stress` and `no_waiting` want its processors. Run one module with
//! `cargo test -p pod-index --no-default-features --test index properties::`.
// The files share modules of `support`, each by a path of its own, because loom-tests and the fuzz targets include the same
// files one by one.
#![allow(clippy::duplicate_mod, reason = "see above")]

#[path = "at/main.rs"]
mod at;
#[path = "broken_pods.rs"]
mod broken_pods;
#[path = "conformance.rs"]
mod conformance;
#[path = "corners.rs"]
mod corners;
#[path = "documents/main.rs"]
mod documents;
#[path = "follow.rs"]
mod follow;
#[path = "freeing.rs"]
mod freeing;
#[path = "handles.rs"]
mod handles;
#[path = "hostile_input.rs"]
mod hostile_input;
#[path = "identity.rs"]
mod identity;
#[path = "keys.rs"]
mod keys;
#[cfg(feature = "k8s-openapi")]
#[path = "keys_of_kubernetes_pods.rs"]
mod keys_of_kubernetes_pods;
#[path = "predicates.rs"]
mod predicates;
#[path = "properties.rs"]
mod properties;
#[path = "removed.rs"]
mod removed;
#[path = "set_pods.rs"]
mod set_pods;
#[path = "sizes.rs"]
mod sizes;
#[path = "small_histories.rs"]
mod small_histories;
#[path = "two_indices.rs"]
mod two_indices;

/// A file that nobody names here would never be compiled, and its tests would never run.
#[test]
fn every_file_of_tests_is_in_a_program() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = include_str!("main.rs");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    for entry in std::fs::read_dir(root.join("tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_test = path.extension().is_some_and(|extension| extension == "rs") && name != "main";
        let is_named =
            here.contains(&format!("\"{name}.rs\"")) || manifest.contains(&format!("\"tests/{name}.rs\""));
        assert!(!is_test || is_named, "neither tests/main.rs nor Cargo.toml names {}", path.display());
    }
}
