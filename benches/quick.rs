//! The index and the bare table, in seconds: run it after every change.
//!
//! `cargo bench -p pod-index-benches --bench quick [-- N...]`, by default for 1,000 and 100,000 pods.

use std::time::Duration;

use support::bare::Bare;
use support::cases;
use support::designs::Design;
use support::figures;
use support::keys;
use support::memory::Counting;
use support::removed;
use support::sizes;
use support::workload::Workload;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let time = if sizes::smoke() { Duration::ZERO } else { Duration::from_millis(1_500) };
    for n in sizes::of(&[1_000, 100_000]) {
        println!("\n{n} pods; ns, and the ratio to the bare table\n");
        let mut workload = Workload::new(n);
        let bytes = cases::bytes(&workload);
        let reads = cases::reads(&mut workload, time);
        let scans = cases::scans(&workload, time);
        let writes = cases::writes(&mut workload, time);
        for figures in [reads, scans, writes, bytes] {
            figures::print(&figures, |figure| {
                let what = match &*figure.what {
                    "UID, miss" => "UID, miss",
                    what if figures.iter().any(|other| other.what == what && other.who == Bare::NAME) => what,
                    _ if figure.what.contains("pods") || figure.what.contains("obtain") => {
                        "walk over all pods, a pod"
                    }
                    _ => "UID, hit",
                };
                (what.to_owned(), Bare::NAME.to_owned())
            });
            println!();
        }
        println!(
            "pods with additional keys; ns, and the ratio to the lookup by UID or to the update without keys\n"
        );
        let lookups = keys::reads(&mut workload, time / 2);
        figures::print(&lookups, |figure| (keys::BY_UID.to_owned(), figure.who.clone()));
        let updates = keys::updates(&mut workload, time);
        figures::print(&updates, |figure| (keys::NO_KEYS.to_owned(), figure.who.clone()));
        figures::print(&keys::bytes(&workload), |figure| (figure.what.clone(), figure.who.clone()));
        println!(
            "\nremoved pods; ns, and the ratio to the lookup of a living pod or to the removal of one not kept\n"
        );
        let lookups = removed::reads(&mut workload, time / 2);
        figures::print(&lookups, |figure| (keys::BY_UID.to_owned(), figure.who.clone()));
        let removals = removed::removals(&workload, time / 2);
        figures::print(&removals, |figure| (removed::NOT_KEPT.to_owned(), figure.who.clone()));
    }
}
