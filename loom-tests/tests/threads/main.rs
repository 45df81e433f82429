//! The core's tests with threads again, as one binary that needs only the bare core: the thread sanitizer takes minutes to
//! compile every other test, and nothing in them is its concern.
#![deny(unsafe_code)]

extern crate modelled_index as pod_index;

#[path = "../../../tests/freeing.rs"]
mod freeing;
#[path = "../../../tests/no_waiting.rs"]
mod no_waiting;
#[path = "../../../tests/stress.rs"]
mod stress;
