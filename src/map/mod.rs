//! The persistent structures the index is made of: a new version costs O(1), and writing to it leaves the one before as
//! it was.
//!
//! - [`Table`] finds an entry by hash: a shallow tree of small open-addressed pages.
//! - `im`'s ordered map and set hold what is rare, where the constant factor does not matter.
//!
//! The only module that names the map crate and the hasher. It must not know what a pod is.

mod hash;
#[expect(unsafe_code, reason = "see the file's own account of it")]
mod node;
#[expect(unsafe_code, reason = "memory is handed out and given back")]
mod stock;
#[expect(unsafe_code, reason = "hands on what `node` asks of the owner of the versions")]
mod table;

pub(crate) use hash::Hashing;
pub(crate) use im::{OrdMap, OrdSet};
pub(crate) use node::{Entry, Garbage, Slot};
pub(crate) use table::{Iter, Side, Table};
