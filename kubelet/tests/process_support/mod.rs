//! Shared by the tests of the resolvers.
#![allow(dead_code, unreachable_pub, reason = "no test uses everything")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pod_index::identity::Cgroup;
use pod_index_kubelet::process::Placement;

/// A clock that stands still until it is advanced. It starts an hour after the start of the machine.
#[derive(Clone)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(3_600_000)))
    }

    pub fn pass(&self, milliseconds: u64) {
        self.0.fetch_add(milliseconds, Ordering::Relaxed);
    }

    pub fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    pub fn read(&self) -> impl Fn() -> Duration + Send + Sync + 'static {
        let clock = self.clone();
        move || clock.now()
    }
}

/// A UID in the API server's spelling.
pub fn uid(number: u8) -> String {
    format!("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1{number:02x}")
}

/// A container ID.
pub fn id(number: u8) -> String {
    format!("{number:02x}").repeat(32)
}

/// The name of a pod's systemd slice.
pub fn slice(number: u8) -> String {
    format!("kubepods-burstable-pod{}.slice", uid(number).replace('-', "_"))
}

/// The expected result.
pub fn pod(number: u8, container: Option<u8>) -> Placement {
    let container = container.map(id).unwrap_or_default();
    let path = format!("/kubepods/pod{}/{container}", uid(number));
    Placement::from(Cgroup::from_path(&path))
}
