//! Records: conformance with the processor's cases, the consistency of the join, and what records take in memory.

mod conformance;
mod consistency;
mod memory;
mod rules;
