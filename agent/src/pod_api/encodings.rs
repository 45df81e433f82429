//! A bounded cache of encoded pods: each form is encoded once for all watches.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hyper::body::Bytes;

use super::object::Object;
use super::shape::{Form, Kind};

/// The cached encodings. Over the limit, the oldest are dropped, and encoded again on demand.
#[derive(Debug)]
pub(super) struct Encodings {
    budget: usize,
    kept: Mutex<Kept>,
    /// The number of encodings made.
    made: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    oldest_first: VecDeque<(Weak<Object>, usize)>,
}

impl Encodings {
    /// A cache of at most this many bytes.
    pub(super) fn new(budget: usize) -> Self {
        Self { budget, kept: Mutex::default(), made: AtomicU64::new(0) }
    }

    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// The event of this kind with this object, as a line. Concurrent callers wait for the first and share its bytes.
    pub(super) fn event(&self, object: &Arc<Object>, form: Form, kind: Kind) -> Bytes {
        let mut encoded = object.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = encoded.iter().find(|(key, _)| *key == (form, kind)) {
            return bytes.clone();
        }
        let of_form = encoded.iter().find(|((known, _), _)| *known == form);
        let bytes = if let Some(((_, other), bytes)) = of_form {
            // The same object in an event of another kind: only the kind differs.
            kind.line(&bytes[other.head().len()..])
        } else {
            self.made.fetch_add(1, Ordering::Relaxed);
            line(object, form, kind, false)
        };
        encoded.push(((form, kind), bytes.clone()));
        drop(encoded);
        self.keep(object, bytes.len());
        bytes
    }

    fn keep(&self, object: &Arc<Object>, bytes: usize) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += bytes;
        kept.oldest_first.push_back((Arc::downgrade(object), bytes));
        let mut surplus = Vec::new();
        while kept.bytes > self.budget {
            let Some((object, bytes)) = kept.oldest_first.pop_front() else { break };
            kept.bytes -= bytes;
            surplus.push(object);
        }
        drop(kept);
        for object in surplus.iter().filter_map(Weak::upgrade) {
            object.encoded.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}

/// Encodes an event that is not shared.
pub(super) fn line(object: &Object, form: Form, kind: Kind, with_columns: bool) -> Bytes {
    let mut line = kind.head().to_vec();
    form.write_one(object, with_columns, &mut line);
    line.extend_from_slice(b"}\n");
    line.into()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::Value;

    use super::*;

    #[test]
    fn an_event_is_encoded_once_per_form_and_dropped_from_a_full_cache() {
        let encodings = Encodings::new(600);
        let object = |version| Object::new(Arc::new(Pod::default()), version);
        let first = object(1);
        let added = encodings.event(&first, Form::Object, Kind::Added);
        let modified = encodings.event(&first, Form::Object, Kind::Modified);
        assert_eq!(encodings.event(&first, Form::Object, Kind::Added).as_ptr(), added.as_ptr());
        assert_eq!(encodings.made(), 1, "one form, two kinds");
        for (bytes, kind) in [(&added, "ADDED"), (&modified, "MODIFIED")] {
            let event: Value = serde_json::from_slice(bytes).unwrap();
            assert_eq!(event["type"], kind);
            assert_eq!(event["object"]["metadata"]["resourceVersion"], "1");
        }
        let _ = encodings.event(&first, Form::Metadata, Kind::Added);
        assert_eq!(encodings.made(), 2);
        let others: Vec<_> = (2..10).map(object).collect();
        for other in &others {
            let _ = encodings.event(other, Form::Object, Kind::Added);
        }
        let kept =
            others.iter().chain([&first]).filter(|object| !object.encoded.lock().unwrap().is_empty()).count();
        assert!((1..9).contains(&kept), "{kept} are kept");
        assert!(first.encoded.lock().unwrap().is_empty());
        assert_eq!(encodings.event(&first, Form::Object, Kind::Added), added);
    }
}
