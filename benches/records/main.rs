//! What it costs to attach attributes to an event: with records, made for each event, and as otel-arrow plans it.
//!
//! `cargo bench -p pod-index-benches --features records --bench records [-- N...]`, by default for 110, 250, 500, 10,000 and
//! 100,000 pods, and batches for up to 1,000,000. Prints the tables of `docs/performance/records.md`, and those of the largest
//! nodes, with 250 and 500 pods, which that page does not have yet.

mod batches;
mod changes;
mod designs;
mod memory;
mod pods;
mod reads;
mod table;

use pod_index_kubelet::records::Rules;
use support::memory::Counting;
use support::sizes;

use self::designs::Designs;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rules = Rules::parse(pods::RULES)?.extract;
    for n in sizes::of(&[110, 250, 500, 10_000, 100_000]) {
        println!("\n## {n} pods");
        let mut designs = Designs::new(n, &rules);
        reads::print(&mut designs);
        changes::print(&mut designs);
    }
    println!("\n## Batches");
    batches::print(&sizes::of(&[110, 1_000, 10_000, 100_000, 1_000_000]));
    println!("\n## Memory");
    memory::print(&sizes::of(&[110]))?;
    Ok(())
}
