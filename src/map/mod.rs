//! The persistent structures the index is made of: copying one is O(1), and writing to a copy leaves the original as
//! it was.
//!
//! - [`Table`] finds an entry by hash: a shallow tree of small open-addressed pages of plain data.
//! - [`Slab`] finds a value by number: a radix tree of small pages.
//! - `im`'s ordered map and set hold what is rare, where the constant factor does not matter.
//!
//! The only room that names the map crate and the hasher. It must not know what a pod is.

mod hash;
mod slab;
mod table;

pub(crate) use hash::Hashing;
pub(crate) use im::{OrdMap, OrdSet};
pub(crate) use slab::{Iter as SlabIter, Slab, Value};
pub(crate) use table::{Entry, Table};
