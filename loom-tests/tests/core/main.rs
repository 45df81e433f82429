//! The core's tests again, as one binary that needs only the bare core, so that a sanitizer builds it in
//! seconds.
//!
//! Tests that count allocations are left out, because a sanitizer allocates too.
#![deny(unsafe_code)]

extern crate modelled_index as pod_index;

#[path = "../../../tests/broken_pods.rs"]
mod broken_pods;
#[path = "../../../tests/corners.rs"]
mod corners;
#[path = "../../../tests/freeing.rs"]
mod freeing;
#[path = "../../../tests/handles.rs"]
mod handles;
#[path = "../../../tests/hostile_input.rs"]
mod hostile_input;
#[path = "../../../tests/keys.rs"]
mod keys;
#[path = "../../../tests/no_waiting.rs"]
mod no_waiting;
#[path = "../../../tests/properties.rs"]
mod properties;
#[path = "../../../tests/sizes.rs"]
mod sizes;
#[path = "../../../tests/stress.rs"]
mod stress;
