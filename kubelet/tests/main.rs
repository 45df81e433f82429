//! The tests of this package, in one program: each program of its own would link all of Kubernetes' types once more.
//!
//! A test that needs a process to itself (it replaces the process's log, or runs the program again) starts one: see
//! the module. Run one module with `cargo test --workspace --all-features --test kubelet sources_merge::`.

#[cfg(feature = "api-server")]
mod api_client;
#[cfg(all(feature = "api-server", target_os = "linux"))]
mod api_client_plugin;
#[cfg(feature = "api-server")]
mod api_server_backlog;
#[cfg(feature = "api-server")]
mod api_server_failures;
#[cfg(feature = "api-server")]
mod api_server_fleet;
#[cfg(feature = "api-server")]
mod api_server_restored;
#[cfg(feature = "api-server")]
mod api_server_source;
#[cfg(feature = "api-server")]
mod api_server_undecodable;
mod checkpoint;
mod checkpoint_kills;
mod checkpoint_unclaimed;
mod checkpoint_versions;
#[cfg(feature = "api-server")]
mod mirror_pods;
mod object_memory;
#[cfg(target_os = "linux")]
mod process_cgroup;
#[cfg(target_os = "linux")]
mod process_pid;
mod protobuf_pods;
#[cfg(feature = "api-server")]
mod real_cluster;
mod records;
#[cfg(feature = "api-server")]
mod references;
#[cfg(feature = "api-server")]
mod references_canary;
#[cfg(feature = "api-server")]
mod references_fields;
#[cfg(all(feature = "api-server", target_os = "linux"))]
mod references_no_waiting;
mod sources_file;
#[cfg(target_os = "linux")]
mod sources_file_history;
#[cfg(target_os = "linux")]
mod sources_file_log;
#[cfg(target_os = "linux")]
mod sources_file_watch;
mod sources_http;
mod sources_kubelet;
#[cfg(feature = "kubelet-socket")]
mod sources_kubelet_socket;
mod sources_manifest;
mod sources_merge;
mod sources_merge_socket;
mod static_pods;

// What the tests share.
use pod_index_test_support::http_server;

mod checkpoint_support;
#[cfg(feature = "api-server")]
#[path = "support/followed.rs"]
mod followed;
#[path = "support/log.rs"]
mod log;
#[cfg(feature = "api-server")]
#[path = "support/node_followed.rs"]
mod node_followed;
#[path = "support/peak.rs"]
mod peak;
#[cfg(target_os = "linux")]
mod process_support;
#[path = "../../tests/support/seeded.rs"]
mod seeded;
mod sources_support;
#[path = "support/updates.rs"]
mod updates;

/// With one program, a file that nobody names here would never be compiled, and its tests would never run.
#[test]
fn every_file_of_tests_is_a_module_of_this_program() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let program = include_str!("main.rs");
    for entry in std::fs::read_dir(here).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let has_tests =
            path.extension().is_some_and(|extension| extension == "rs") || path.join("mod.rs").exists();
        let is_elsewhere = ["main", "checkpoint_internal"].contains(&name);
        assert!(
            !has_tests || is_elsewhere || program.contains(&format!("\nmod {name};\n")),
            "kubelet/tests/main.rs has no `mod {name};`"
        );
    }
}
