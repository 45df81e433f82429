//! Two Secrets, whose cells get the memory of each other's old versions: all versions have one size.
//!
//! As in `tests/two_indices.rs` of the index: with arc-swap up to 1.9.4, a read of one Secret could return the content of
//! another one.

#[expect(unsafe_code, reason = "a signal's handler")]
#[path = "../../../../tests/support/steps.rs"]
mod steps;

use std::sync::Arc;

use steps::{Stops, each_pair_of_stops, with_stops};

use super::{Followed, Known, Object, ObjectKey};

/// The name of the Secret that it belongs to. Larger than a version of a cell, so that their memory is never exchanged.
type Content = [&'static str; 16];

/// Places at which a read is stopped.
const PLACES: usize = 24;

struct Secret {
    name: &'static str,
    followed: Followed<Content>,
}

impl Secret {
    fn new(name: &'static str) -> Self {
        let followed = Followed::new(ObjectKey::new("ns", name).expect("a name"));
        let secret = Self { name, followed };
        secret.write();
        secret
    }

    /// A new version arrives, and the one before is freed if nobody reads it.
    fn write(&self) {
        assert!(self.followed.write(Some(Object::new([self.name; 16]))));
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.followed.read()).addr()
    }
}

#[test]
fn a_read_that_is_stopped_anywhere_never_returns_another_secret() {
    let own = Secret::new("own");
    let other = Secret::new("other");
    let mut foreign = Vec::new();
    let mut pairs = 0;
    let mut reused = 0;
    let mut try_out = |stops: Stops| {
        let before = own.address();
        let mut after = 0;
        let write = |part| {
            if part == 0 {
                own.write();
            }
            other.write();
            if part == 0 {
                after = other.address();
            }
        };
        let (known, instructions) = with_stops(stops, || own.followed.read(), write);
        pairs += 1;
        reused += usize::from(after == before);
        let Known::Present(object) = &*known else { panic!("it was written") };
        if object[0] != own.name {
            foreign.push(stops);
        }
        instructions
    };
    let never = [usize::MAX; 2];
    // The first load of a thread takes arc-swap's slots for it.
    try_out(never);
    let instructions = try_out(never);
    each_pair_of_stops(instructions, PLACES, |stops| {
        try_out(stops);
    });
    println!("{instructions} instructions; {pairs} pairs of stops, {reused} with the same address");
    assert_eq!(foreign, [[0; 2]; 0], "versions of the other Secret");
    assert!(pairs > 100 && reused > pairs / 10, "{reused} of {pairs} tried what they should");
}
