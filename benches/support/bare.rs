//! The limit: one flat table, UIDs as sixteen bytes, one multiplication to hash them, no synchronisation at all.
//!
//! No index that readers share can be faster than this; how near one comes is what the benches are about.

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

    /// The pod with this UID, which is parsed already.
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

    /// Takes a pod out.
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
    // Any odd constants do: nobody attacks a bench.
    let product = u128::from(key[0] ^ 0x243f_6a88_85a3_08d3) * u128::from(key[1] ^ 0x1319_8a2e_0370_7345);
    product as u64 ^ (product >> 64) as u64
}

/// Sixteen bytes from a UUID or from 32 hex digits: one for each two digits, in whatever order is cheap.
#[inline]
#[must_use]
pub fn parse(uid: &str) -> Option<Key> {
    let uid = uid.as_bytes();
    if let Ok(uid) = <&[u8; 36]>::try_from(uid) {
        let [a, b, c, d] = [word(uid, 0), word(uid, 8), word(uid, 16), word(uid, 24)];
        let hyphens = b & 0x0000_ff00_0000_00ff == 0x0000_2d00_0000_002d
            && c & 0xff00_0000_00ff_0000 == 0x2d00_0000_002d_0000;
        // What stands between the hyphens, joined: `-bbbb-bb`, `cc-cccc-`, and the last four digits.
        let second = b >> 8 & 0xffff_ffff | (c >> 24 & 0xffff_ffff) << 32;
        let third = b >> 48 | (c & 0xffff) << 16 | word(uid, 28) & 0xffff_ffff_0000_0000;
        return unhex([a, second, third, d]).filter(|_| hyphens);
    }
    let uid: &[u8; 32] = uid.try_into().ok()?;
    unhex([word(uid, 0), word(uid, 8), word(uid, 16), word(uid, 24)])
}

#[inline]
fn word(text: &[u8], at: usize) -> u64 {
    text.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Sixteen digits at a time, in vector registers.
#[inline]
fn unhex(digits: [u64; 4]) -> Option<Key> {
    let mut bad = u8x16::splat(0);
    let mut nibbles = |digits: [u64; 2]| {
        let digits: u8x16 = must_cast(digits);
        let (decimal, letter) = (digits - u8x16::splat(b'0'), digits - u8x16::splat(b'a'));
        let (nine, five) = (u8x16::splat(9), u8x16::splat(5));
        bad |= decimal.saturating_sub(nine).min(letter.saturating_sub(five));
        // Whichever is wrong has wrapped round to a large number.
        must_cast::<_, u16x8>(decimal.min(letter + u8x16::splat(10)))
    };
    let (high, low) = (nibbles([digits[0], digits[1]]), nibbles([digits[2], digits[3]]));
    let good = bad.cmp_eq(u8x16::splat(0)).all();
    good.then(|| must_cast((high << 4) | low))
}
