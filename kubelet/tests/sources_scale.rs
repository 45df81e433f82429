//! Ten thousand manifests in one directory: the cost of the first listing and of one edit afterwards.
//!
//! Measurements, not guarantees, so it runs by hand, alone and optimised:
//! `cargo test --release -p pod-index-kubelet --test sources_scale -- --ignored --nocapture`
#![cfg(target_os = "linux")]

mod sources_support;

use std::fs;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use pod_index_kubelet::sources::file::FileSource;
use pod_index_kubelet::sources::{Merge, NodeName, Source, SourceUpdate};
use sources_support::Directory;

const MANIFESTS: usize = 10_000;
const EDITS: u32 = 20;

/// As large as a control plane manifest.
fn manifest(name: &str, image: &str) -> String {
    let flags: String =
        ["--a-flag-of-some-length=some-value-of-a-length\n"; 30].map(|flag| format!("    - {flag}")).concat();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: kube-system\n  labels: {{component: {name}, tier: \
         control-plane}}\nspec:\n  hostNetwork: true\n  priorityClassName: system-node-critical\n  containers:\n  - name: \
         main\n    image: {image}\n    command:\n{flags}    resources:\n      requests: {{cpu: 200m}}\n    livenessProbe:\n      \
         httpGet: {{host: 127.0.0.1, path: /livez, port: 6443, scheme: HTTPS}}\n    volumeMounts:\n    - {{mountPath: \
         /etc/ssl/certs, name: ca-certs, readOnly: true}}\n  volumes:\n  - {{name: ca-certs, hostPath: {{path: \
         /etc/ssl/certs, type: DirectoryOrCreate}}}}\n"
    )
}

/// `VmRSS` or `VmHWM` of this process, in MiB.
fn memory(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(field)).expect("a field");
    let number = line.split_whitespace().nth(1).expect("a number");
    number.parse::<u64>().expect("a number") / 1024
}

/// CPU time of all threads of this process.
fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(ticks * 10)
}

#[tokio::test]
#[ignore = "a measurement: .ci/run figures"]
async fn ten_thousand_manifests() {
    let directory = Directory::new();
    for number in 0..MANIFESTS {
        directory.write(&format!("p{number}.yaml"), manifest(&format!("p{number}"), "image:1"));
    }
    let bytes = manifest("p0", "image:1").len();
    println!("{MANIFESTS} manifests of about {bytes} bytes, {} MiB before", memory("VmRSS"));

    let (mut writer, reader) = pod_index::new();
    let mut merge = Merge::new([Source::File]);
    let mut source =
        FileSource::with_period(directory.path(), NodeName::new("n1"), Duration::from_secs(3600));
    let (start, start_cpu) = (Instant::now(), cpu());
    let first = source.next().await.expect("a set");
    let read = start.elapsed();
    let _ = writer.apply(merge.update(Source::File, first).into_operations());
    assert_eq!(reader.load().pods().len(), MANIFESTS);
    println!(
        "ready after {:?} (read and decoded: {read:?}), CPU {:?}",
        start.elapsed(),
        cpu().saturating_sub(start_cpu)
    );
    println!("{} MiB after, {} MiB at most", memory("VmRSS"), memory("VmHWM"));

    // A listing soon after the files were written reads them all again, because their time stamps are not
    // reliable yet. Measure one such listing, then the cost of a later one.
    for settled in [false, true] {
        if settled {
            tokio::time::sleep(Duration::from_secs(4)).await;
            // Brings the stamps up to date.
            directory.write("p0.yaml", manifest("p0", "image:settle"));
            let update = source.next().await.expect("a set");
            let _ = writer.apply(merge.update(Source::File, update).into_operations());
        }
        let (mut seen, mut merged, mut applied, start_cpu) =
            (Duration::ZERO, Duration::ZERO, Duration::ZERO, cpu());
        for edit in 0..EDITS {
            directory.write("p5000.yaml", manifest("p5000", &format!("image:{settled}-{edit}")));
            let start = Instant::now();
            let update = source.next().await.expect("a set");
            let SourceUpdate::Set(pods) = &update else { panic!("{update:?}") };
            assert_eq!(pods.len(), MANIFESTS);
            seen += start.elapsed();
            let start = Instant::now();
            let operations = merge.update(Source::File, update);
            merged += start.elapsed();
            assert_eq!((operations.added.len(), operations.removed.len()), (1, 1));
            let start = Instant::now();
            let _ = writer.apply(operations.into_operations());
            applied += start.elapsed();
        }
        println!(
            "one edit, stamps {}: told after {:?}, merged in {:?}, applied in {:?}, CPU {:?}",
            if settled { "settled" } else { "fresh" },
            seen / EDITS,
            merged / EDITS,
            applied / EDITS,
            (cpu().saturating_sub(start_cpu)) / EDITS
        );
    }
}
