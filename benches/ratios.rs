//! All designs on one thread, interleaved: the source of the report's ratio tables.
//!
//! `cargo bench -p pod-index-benches --features peers --bench ratios`

use std::time::Duration;

use support::bare::Bare;
use support::cases;
use support::designs::Design;
use support::figures;
use support::memory::Counting;
use support::sizes;
use support::workload::Workload;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> std::io::Result<()> {
    let time = if sizes::smoke() { Duration::ZERO } else { Duration::from_secs(3) };
    let mut all = Vec::new();
    for n in sizes::of(&[110, 1_000, 10_000, 100_000, 1_000_000]) {
        println!("\n{n} pods; ns, and the ratio to the bare table\n");
        let mut workload = Workload::new(n);
        for figures in [
            cases::reads(&mut workload, time),
            cases::scans(&workload, time / 2),
            cases::writes(&mut workload, time),
        ] {
            figures::print(&figures, |figure| (figure.what.clone(), Bare::NAME.to_owned()));
            all.extend(figures);
        }
    }
    sizes::keep(|| figures::save("ratios", &all))
}
