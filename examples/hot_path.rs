//! The hot path of an agent: one `CachedReader` per thread looks pods up as fast as it can while a writer
//! replaces all of them again and again. No reader ever waits for the writer.
//!
//! `cargo run --release --example hot_path`
//!
//! The output is a demonstration, not a benchmark: see `benches/` for comparable figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pod_index::PodMeta;

const PODS: usize = 10_000;
const READERS: usize = 2;
const RUN: Duration = Duration::from_secs(1);

struct Pod {
    uid: String,
    name: String,
    namespace: String,
}

impl PodMeta for Pod {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn namespace(&self) -> &str {
        &self.namespace
    }
    fn annotation(&self, _key: &str) -> Option<&str> {
        None
    }
}

fn pods() -> Vec<Arc<Pod>> {
    let pod = |i| {
        let (uid, name) = (format!("00000000-0000-4000-8000-{i:012x}"), format!("web-{i}"));
        Arc::new(Pod { uid, name, namespace: "default".to_owned() })
    };
    (0..PODS).map(pod).collect()
}

fn main() {
    let (mut writer, reader) = pod_index::new::<Pod>();
    assert!(writer.set_pods(pods()).refused.is_empty());
    let running = AtomicBool::new(true);

    thread::scope(|scope| {
        for thread in 0..READERS {
            let (mut cached, running) = (reader.cached(), &running);
            scope.spawn(move || {
                // An event from the kernel names its pod by UID; parse it once.
                let uids: Vec<pod_index::PodUid> = pods().iter().map(|pod| pod.uid.as_str().into()).collect();
                let (mut lookups, mut found) = (0_u64, 0_u64);
                while running.load(Ordering::Relaxed) {
                    for uid in &uids {
                        lookups += 1;
                        found += u64::from(cached.load().pod_by_uid(uid).is_some());
                    }
                }
                assert_eq!(lookups, found, "every pod is there at every moment");
                println!("reader {thread}: {lookups} lookups, every one a hit");
            });
        }

        let start = Instant::now();
        while start.elapsed() < RUN {
            assert!(writer.set_pods(pods()).refused.is_empty());
        }
        running.store(false, Ordering::Relaxed);
        println!("writer: replaced all {PODS} pods {} times meanwhile", writer.current().generation());
    });
    println!("snapshots left to free once the readers are gone: {}", writer.reclaim());
}
