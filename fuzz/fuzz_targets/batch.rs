//! A batch: the pods it reports as refused, whether it was published, and that its result equals that of
//! single steps. The changes between the two snapshots lead from one to the other.
#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

mod input;

use input::Bytes;
use libfuzzer_sys::fuzz_target;
use support::history::{Run, Step};

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes::new(data);
    let before = bytes.below(8);
    let (mut single, mut batched) = (Run::default(), Run::default());
    for _ in 0..before {
        let Some(step) = bytes.single_step() else { break };
        single.step(&step);
        batched.step(&step);
    }
    let mut batch = Vec::new();
    while let Some(step) = bytes.single_step() {
        single.step(&step);
        batch.push(step);
    }
    let start = batched.reader.snapshot();
    batched.step(&Step::Batch(batch));
    let end = batched.reader.snapshot();
    assert_eq!(single.compare(), batched.compare(), "a batch equals its single steps");
    Run::compare_changes(&start, &end);
    Run::compare_changes(&end, &start);
});
