//! Short texts repeated by many entries, such as container names: one record per text, not per entry.

use std::collections::HashMap;

use super::record::Label;

/// Longer texts are not cached.
const MAX_LENGTH: usize = 64;
/// Maximum number of cached texts. A cluster uses a few hundred container names.
const MAX_LABELS: usize = 1024;

/// The records of recently used texts. Owns one count of each.
#[derive(Default)]
pub(super) struct Labels(HashMap<Box<str>, Label>);

impl Labels {
    /// Another count of this text's label, if cached.
    pub(super) fn get(&self, text: &str) -> Option<Label> {
        self.0.get(text).map(Label::share)
    }

    /// Caches a label for later entries with the same text.
    pub(super) fn keep(&mut self, label: &Label) {
        let text = label.as_str();
        if text.len() > MAX_LENGTH {
            return;
        }
        if self.0.len() == MAX_LABELS {
            // Texts in use return with the next entry that has them.
            self.clear();
        }
        if let Some(other) = self.0.insert(text.into(), label.share()) {
            other.into_record().release();
        }
    }

    /// Releases all counts.
    pub(super) fn clear(&mut self) {
        self.0.drain().for_each(|(_, label)| label.into_record().release());
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
    use super::{Label, Labels, MAX_LABELS, MAX_LENGTH};

    #[test]
    fn a_label_is_one_record_until_its_last_user_is_dropped() {
        let before = LIVE.get();
        let mut labels = Labels::default();
        let one = Label::new(1, "app");
        labels.keep(&one);
        let other = labels.get("app").expect("it is kept");
        assert_eq!((LIVE.get(), other.as_str()), (before + 1, "app"));
        one.into_record().release();
        other.into_record().release();
        let again = labels.get("app").expect("it is kept still");
        again.into_record().release();
        drop(labels);
        assert_eq!(LIVE.get(), before);
    }

    #[test]
    fn the_label_cache_is_bounded() {
        let before = LIVE.get();
        let mut labels = Labels::default();
        let texts = (0..3 * MAX_LABELS).map(|n| n.to_string()).chain(["x".repeat(MAX_LENGTH + 1)]);
        for text in texts {
            let label = Label::new(1, &text);
            labels.keep(&label);
            label.into_record().release();
            assert!(LIVE.get() <= before + MAX_LABELS);
        }
        assert!(labels.get(&"x".repeat(MAX_LENGTH + 1)).is_none());
        drop(labels);
        assert_eq!(LIVE.get(), before);
    }
}
