//! Short texts that many entries repeat, such as the names of containers: one record for each text, not for each entry.

use std::collections::HashMap;

use super::record::Record;

/// A text that is longer is not kept.
const MAX_LENGTH: usize = 64;
/// How many texts are kept. A cluster uses a few hundred names of containers.
const MAX_LABELS: usize = 1024;

/// The records of texts that were used before. It owns one count of each.
#[derive(Default)]
pub(super) struct Labels(HashMap<Box<str>, Record>);

impl Labels {
    /// Another count of the record of this text, if it is kept.
    pub(super) fn get(&self, text: &str) -> Option<Record> {
        self.0.get(text).map(Record::share)
    }

    /// Keeps a record for the next entry with this text.
    pub(super) fn keep(&mut self, text: &str, record: &Record) {
        if text.len() > MAX_LENGTH {
            return;
        }
        if self.0.len() == MAX_LABELS {
            // Whatever is in use comes back with the next entry that has it.
            self.clear();
        }
        if let Some(other) = self.0.insert(text.into(), record.share()) {
            other.release();
        }
    }

    /// Gives all counts back.
    pub(super) fn clear(&mut self) {
        self.0.drain().for_each(|(_, record)| record.release());
    }
}

impl Drop for Labels {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::record::audit::LIVE;
    use super::{Labels, MAX_LABELS, MAX_LENGTH, Record};

    #[test]
    fn a_label_is_one_record_until_the_last_of_its_users_goes() {
        let before = LIVE.get();
        let mut labels = Labels::default();
        let one = Record::new(1, b"app", b"");
        labels.keep("app", &one);
        let other = labels.get("app").expect("it is kept");
        assert_eq!(LIVE.get(), before + 1);
        one.release();
        other.release();
        assert!(labels.get("app").is_some_and(|again| {
            again.release();
            true
        }));
        drop(labels);
        assert_eq!(LIVE.get(), before);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let before = LIVE.get();
        let mut labels = Labels::default();
        let texts = (0..3 * MAX_LABELS).map(|n| n.to_string()).chain(["x".repeat(MAX_LENGTH + 1)]);
        for text in texts {
            let record = Record::new(1, text.as_bytes(), b"");
            labels.keep(&text, &record);
            record.release();
            assert!(LIVE.get() <= before + MAX_LABELS);
        }
        assert!(labels.get(&"x".repeat(MAX_LENGTH + 1)).is_none());
        drop(labels);
        assert_eq!(LIVE.get(), before);
    }
}
