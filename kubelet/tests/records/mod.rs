//! Records: conformance with the processor's cases, and the consistency of the join.

mod conformance;
mod consistency;
mod rules;
