//! What the splitters of lists have in common. The answer to a list is split into its objects while it arrives, so that only one
//! of them is in memory as it was sent: by `items` if it is JSON, by `protobuf_items` if it is protobuf.

use super::failure::{Failure, FailureKind};

/// Size limit of an object in bytes. etcd accepts at most 1.5 MiB.
pub(super) const LARGEST: usize = 8 << 20;

/// Takes an object as it was sent.
pub(super) type Each<'a> = &'a mut (dyn FnMut(&[u8]) -> Result<(), Failure> + Send);

/// The part of a list that has arrived.
pub(super) trait Split: Send {
    /// Takes the next bytes, and passes on the objects that they complete.
    fn take(&mut self, bytes: &[u8], each: Each<'_>) -> Result<(), Failure>;

    /// Passes on the last objects. Returns the version of the list.
    fn end(&mut self, each: Each<'_>) -> Result<u64, Failure>;
}

/// The failure of a list with an object beyond [`LARGEST`].
pub(super) fn too_large() -> Failure {
    Failure::new(FailureKind::Doubt, "an object of the list is too large")
}
