//! Shared by the benches: pods and keys, the compared designs, and how to measure.

pub mod background;
pub mod bare;
pub mod cases;
pub mod designs;
pub mod every_key;
pub mod figures;
pub mod keys;
pub mod machine;
pub mod markdown;
pub mod memory;
pub mod plot;
#[cfg(feature = "criterion")]
pub mod profiler;
pub mod removed;
pub mod rounds;
pub mod sizes;
pub mod stamp;
pub mod throughput;
pub mod workload;
