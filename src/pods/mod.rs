//! What is in the tables of an index: pods, the keys that they claim, who holds a key, and when.
//!
//! | file | what |
//! |---|---|
//! | `tables` | the tables of a set of pods, and how a key is found in them |
//! | `contenders` | the claims to keys that another pod holds |
//! | `mirror` | a mirror pod, and the translation of its UID |
//! | `hashed_key`, `hashed_uid` | a key and a UID as the tables find them |
//! | `history` | the removed pods to which a mirror still translates |
//! | `removed`, `queue` | removed pods, in the order in which they are forgotten |
//! | `times` | since when, and until when, a pod held a key |
//! | `found` | by what a lookup is asked, and what it returns |
//!
//! This module stores and finds. `snapshot` has the reads that users call, `update` the rules of a write: who holds a key
//! next, to what a mirror translates, which removed pods are kept. `table` below does not know what a pod is.

mod contenders;
mod found;
mod hashed_key;
mod hashed_uid;
mod history;
mod key_numbers;
mod mirror;
mod queue;
mod removed;
mod tables;
mod times;

pub(crate) use contenders::{Contender, Contenders};
pub use found::{Found, FoundBy, Key};
pub(crate) use hashed_key::{HashedKey, HashedName};
pub(crate) use hashed_uid::HashedUid;
pub(crate) use history::History;
pub(crate) use key_numbers::KeyNumbers;
pub(crate) use mirror::{Mirror, Translation};
pub(crate) use removed::{Removals, RemovedPod, RemovedSet};
pub(crate) use tables::{Claimant, Container, Tables};
pub(crate) use times::{End, EndCause, Hold, HoldId, Learned, OldObject, Times};
