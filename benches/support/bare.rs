//! A table that is not shared: one flat hash table, UIDs as sixteen bytes, one multiplication as the hash, no
//! synchronisation.
//!
//! How much does it cost that other threads read the same pods while one writes? The designs of the benches allow that, and
//! this table does not, so the difference tells. It is one way to build such a table, and not the fastest possible: a design
//! can come near it, and one that has less to do for some operation is faster there.

use std::sync::Arc;

use bytemuck::must_cast;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use pod_index::PodMeta;
use wide::{u8x16, u16x8};

use crate::workload::Pod;

/// A UID as sixteen bytes.
pub type Key = [u64; 2];

/// Pods by UID.
#[derive(Default)]
pub struct Bare {
    table: HashTable<(Key, Arc<Pod>)>,
}

impl Bare {
    /// A table of these pods.
    pub fn of(pods: impl IntoIterator<Item = Arc<Pod>>) -> Self {
        let mut new = Self::default();
        pods.into_iter().for_each(|pod| new.update(pod));
        new
    }

    /// The pod with this UID.
    #[inline]
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&Arc<Pod>> {
        self.get_parsed(parse(uid)?)
    }

    /// The pod with this parsed UID.
    #[inline]
    #[must_use]
    pub fn get_parsed(&self, key: Key) -> Option<&Arc<Pod>> {
        self.table.find(hash(key), |entry| entry.0 == key).map(|entry| &entry.1)
    }

    /// Stores a pod.
    pub fn update(&mut self, pod: Arc<Pod>) {
        let Some(key) = parse(pod.uid()) else { return };
        match self.table.entry(hash(key), |entry| entry.0 == key, |entry| hash(entry.0)) {
            Entry::Occupied(mut entry) => entry.get_mut().1 = pod,
            Entry::Vacant(entry) => drop(entry.insert((key, pod))),
        }
    }

    /// Removes a pod.
    pub fn remove(&mut self, uid: &str) {
        let Some(key) = parse(uid) else { return };
        if let Ok(entry) = self.table.find_entry(hash(key), |entry| entry.0 == key) {
            entry.remove();
        }
    }

    /// All pods.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.table.iter().map(|entry| &entry.1)
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
fn hash(key: Key) -> u64 {
    // Any odd constants will do: a bench is not attacked.
    let product = u128::from(key[0] ^ 0x243f_6a88_85a3_08d3) * u128::from(key[1] ^ 0x1319_8a2e_0370_7345);
    product as u64 ^ (product >> 64) as u64
}

/// Sixteen bytes from a UUID or 32 hex digits: two digits per byte, in any cheap order.
#[inline]
#[must_use]
pub fn parse(uid: &str) -> Option<Key> {
    let uid = uid.as_bytes();
    let mut bad = u8x16::splat(0);
    let mut nibbles = |digits: u8x16| {
        let (decimal, letter) = (digits - u8x16::splat(b'0'), digits - u8x16::splat(b'a'));
        let (nine, five) = (u8x16::splat(9), u8x16::splat(5));
        bad |= decimal.saturating_sub(nine).min(letter.saturating_sub(five));
        // The wrong one of the two values exceeds 15, so the minimum is the right one.
        decimal.min(letter + u8x16::splat(10))
    };
    let (low, high) = if let Ok(uid) = <&[u8; 36]>::try_from(uid) {
        // The last four digits replace the hyphens.
        let [first, second] = HYPHENS.map(u8x16::from);
        let zero = u8x16::splat(b'-' ^ b'0');
        let low = nibbles(vector(uid, 0) ^ first & zero);
        let high = nibbles(vector(uid, 16) ^ second & zero);
        let last: [u8; 4] = uid[32..].try_into().ok()?;
        let last = nibbles(must_cast([last; 4]));
        bad |= low & first | high & second;
        (low | last & first, high | last & second)
    } else {
        let uid: &[u8; 32] = uid.try_into().ok()?;
        (nibbles(vector(uid, 0)), nibbles(vector(uid, 16)))
    };
    let good = bad.cmp_eq(u8x16::splat(0)).all();
    good.then(|| must_cast(must_cast::<_, u16x8>(low) | must_cast::<_, u16x8>(high) << 4))
}

/// Positions of a UUID's hyphens, in its first sixteen characters and the next.
const HYPHENS: [[u8; 16]; 2] = {
    let mut hyphens = [[0; 16]; 2];
    (hyphens[0][8], hyphens[0][13], hyphens[1][2], hyphens[1][7]) = (0xff, 0xff, 0xff, 0xff);
    hyphens
};

#[inline]
fn vector(text: &[u8], at: usize) -> u8x16 {
    text.get(at..at + 16).and_then(|vector| <[u8; 16]>::try_from(vector).ok()).unwrap_or_default().into()
}
