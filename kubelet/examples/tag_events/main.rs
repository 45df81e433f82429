//! Tags the events of an eBPF program with their pods: `cargo run -p pod-index-kubelet --example tag_events`
//!
//! `tagger.rs` is the part to copy. `node.rs` makes directories that look like a node's `/proc` and `/sys/fs/cgroup`, so
//! that the example runs without a cluster.

#[cfg(target_os = "linux")]
mod node;
#[cfg(target_os = "linux")]
mod tagger;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    node::run()?.iter().for_each(|line| println!("{line}"));
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {}
