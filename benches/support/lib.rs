//! What the benches share: the pods and keys they work on, the designs they compare, and how they measure.
//!
//! This module knows every design it measures, and nothing of what a bench concludes.

pub mod background;
pub mod bare;
pub mod cases;
pub mod designs;
pub mod figures;
pub mod memory;
#[cfg(feature = "criterion")]
pub mod profiler;
pub mod rounds;
pub mod sizes;
pub mod stamp;
pub mod workload;
