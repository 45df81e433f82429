//! The index's memory, without pods: bytes per pod, and the cost of a held old snapshot.

use pod_index::Operation;
use support::cases;
use support::designs::{Cached, Design};
use support::figures::{self, Figure};
use support::memory::{Counting, allocated};
use support::sizes;
use support::workload::{Pod, Workload};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> std::io::Result<()> {
    let mut all = Vec::new();
    for n in sizes::of(&[110, 1_000, 10_000, 100_000, 1_000_000]) {
        let mut workload = Workload::new(n);
        let mut figures = cases::bytes(&workload);
        figures.push(Figure {
            n,
            what: "bytes a pod, pod by pod".into(),
            who: Cached::NAME.into(),
            value: grown(&workload),
        });
        for (what, batched) in [("1,000 updates", false), ("1,000 updates in one batch", true)] {
            let value = held(&mut workload, batched);
            let what = format!("bytes of a snapshot held over {what}");
            figures.push(Figure { n, what, who: Cached::NAME.into(), value });
        }
        println!("\n{n} pods");
        for Figure { what, who, value, .. } in &figures {
            println!("{what:<56} {who:<36} {value:>12.1}");
        }
        all.extend(figures);
    }
    sizes::keep(|| figures::save("memory", &all))
}

/// Bytes per pod of an index filled pod by pod.
fn grown(workload: &Workload) -> f64 {
    let before = allocated();
    let (mut writer, _reader) = pod_index::new::<Pod>();
    for pod in workload.all() {
        writer.upsert_pod(pod).expect("a good pod");
    }
    let _ = writer.reclaim();
    number(allocated() - before) / number(workload.pods.len().cast_signed())
}

/// Bytes that go back to the allocator when a snapshot taken before 1,000 updates is dropped. All old and new pods
/// stay alive meanwhile. The pages that the writer keeps for later writes do not count.
fn held(workload: &mut Workload, batched: bool) -> f64 {
    let (mut writer, reader) = pod_index::new::<Pod>();
    let _ = writer.set_pods(workload.all());
    let mut updates = workload.updates();
    updates.truncate(1_000);
    let snapshot = reader.snapshot();
    if batched {
        let _ = writer.apply(updates.iter().cloned().map(Operation::Upsert));
    } else {
        for pod in &updates {
            writer.upsert_pod(pod.clone()).expect("a good pod");
        }
    }
    let _ = writer.reclaim();
    let with = allocated();
    drop(snapshot);
    let _ = writer.reclaim();
    number(with - allocated())
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn number(bytes: isize) -> f64 {
    bytes as f64
}
