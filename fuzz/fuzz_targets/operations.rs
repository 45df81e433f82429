//! A history of single writes and batches: every read of every state equals the plain maps of the model. Removed pods are
//! kept for a few steps.
#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

mod input;

use input::Bytes;
use libfuzzer_sys::fuzz_target;
use support::history::Run;

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes::new(data);
    let mut run = Run::keeping(8, 6);
    let mut kept = Vec::new();
    while let Some(step) = bytes.step() {
        run.step(&step);
        kept.push((run.reader.snapshot(), run.compare()));
    }
    for (snapshot, observation) in &kept {
        let again = support::observation::Observation::of(snapshot, &run.universe);
        assert_eq!(again, *observation, "a snapshot stays as it was");
    }
});
