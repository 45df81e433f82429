//! Converts bytes to the steps of a history. By hand, so that a changed byte is a changed step, and the
//! corpus survives changes of a derive.

use crate::support::history::{Kind, NAMES, NAMESPACES, Spec, Step, UIDS};
use crate::support::keys::COMBINATIONS;

pub struct Bytes<'a> {
    left: std::slice::Iter<'a, u8>,
}

impl<'a> Bytes<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        // The history is compared with the model after each step, so longer ones only cost time.
        Self { left: data[..data.len().min(512)].iter() }
    }

    /// A number below `limit`; 0 when nothing is left.
    pub fn below(&mut self, limit: usize) -> usize {
        self.left.next().map_or(0, |byte| usize::from(*byte) % limit)
    }

    #[allow(dead_code, reason = "one target has no batches within its histories")]
    pub fn step(&mut self) -> Option<Step> {
        if self.left.as_slice().first().is_some_and(|byte| *byte >= 0xe0) {
            let count = self.below(8);
            return Some(Step::Batch((0..count).map_while(|_| self.single_step()).collect()));
        }
        self.single_step()
    }

    pub fn single_step(&mut self) -> Option<Step> {
        let first = *self.left.next()?;
        Some(match first % 16 {
            0..=7 => Step::Upsert(self.spec()),
            8 => Step::Again(self.below(16)),
            9..=11 => Step::RemoveUid(self.below(UIDS.len())),
            12 if first >= 0x80 => Step::Expire(self.below(8) as u64),
            12 => Step::RemovePod(self.spec()),
            13 => Step::SwapNames(self.below(16), self.below(16)),
            14 => Step::Set(self.specs()),
            _ => {
                let without = self.below(256) | self.below(256) << 8;
                Step::SetSome(u16::try_from(without).unwrap_or_default(), self.specs())
            }
        })
    }

    fn specs(&mut self) -> Vec<Spec> {
        (0..self.below(8)).map(|_| self.spec()).collect()
    }

    fn spec(&mut self) -> Spec {
        const KINDS: [Kind; 8] = [
            Kind::File,
            Kind::Mirror,
            Kind::Bare,
            Kind::Api,
            Kind::Http,
            Kind::EmptyMirror,
            Kind::StaticMirror,
            Kind::Mirror,
        ];
        // Name and namespace from one byte; mostly the first of them.
        let (uid, place, kind) = (self.below(UIDS.len()), self.below(256), self.below(256));
        Spec {
            uid,
            name: if place < 192 { place % 3 } else { place % NAMES.len() },
            namespace: if place < 224 { place / 3 % 2 } else { place / 3 % NAMESPACES.len() },
            kind: KINDS[kind % 8],
            ephemeral: kind % 24 / 8,
            // From what is left of two bytes.
            keys: (kind / 24 * 24 + place % 24) % COMBINATIONS,
        }
    }
}
