//! Lists: the version, its selected pods, and where the next page begins.

use std::sync::Arc;

use super::continuation::Continuation;
use super::history::{History, State, range};
use super::object::Object;
use super::query::{Matching, Options, Version};
use super::shape::Form;
use super::status::Refusal;

/// The response is sent in parts of about this many bytes.
const CHUNK: usize = 32 * 1024;

/// A page of pods.
#[derive(Debug)]
pub(super) struct Page {
    objects: Vec<Arc<Object>>,
    version: u64,
    continuation: Option<String>,
    /// The number of pods after this page, if known.
    remaining: Option<usize>,
}

impl Page {
    /// The requested page.
    pub(super) fn of(history: &History, options: &Options) -> Result<Self, Refusal> {
        let start = options.continuation.as_ref().map(|continuation| &*continuation.start);
        // The API server does not page at version 0.
        let limit = options.limit.filter(|_| options.version != Version::Any || start.is_some());
        let (state, version) = shown(history, options, limit.is_some())?;
        let namespace = options.selection.namespace.as_deref();
        let selected = |object: &Arc<Object>| options.selection.matches(&object.pod);
        let mut pods = range(&state, namespace, start).filter(|(_, object)| selected(object));
        let mut objects = Vec::new();
        let mut last = None;
        for (key, object) in pods.by_ref().take(limit.unwrap_or(usize::MAX)) {
            objects.push(Arc::clone(object));
            last = Some(key);
        }
        let behind = if limit.is_some() { pods.count() } else { 0 };
        let continuation = last.filter(|_| behind > 0).map(|key| {
            let version = options
                .continuation
                .as_ref()
                .map_or(Some(version), |before| before.version.or(Some(version)));
            Continuation::after(version, key).write()
        });
        let remaining = Some(behind).filter(|behind| *behind > 0 && options.selection.has_no_selector());
        Ok(Self { objects, version, continuation, remaining })
    }

    /// The number of pods on the page.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The page as JSON, in parts.
    pub(super) fn write(self, form: Form) -> impl Iterator<Item = Vec<u8>> + Send + Unpin {
        let mut chunk = form.list_head(self.version, self.continuation.as_deref(), self.remaining);
        let mut objects = self.objects.into_iter();
        let mut is_first = true;
        let mut is_over = false;
        std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            while chunk.len() < CHUNK {
                let Some(object) = objects.next() else {
                    chunk.extend_from_slice(b"]}");
                    is_over = true;
                    break;
                };
                if !is_first {
                    chunk.push(b',');
                }
                is_first = false;
                form.write_item(&object, &mut chunk);
            }
            Some(std::mem::take(&mut chunk))
        })
    }
}

/// The requested pods and their version.
fn shown(history: &History, options: &Options, is_paged: bool) -> Result<(State, u64), Refusal> {
    if let Some(continuation) = &options.continuation {
        let Some(version) = continuation.version else { return Ok(history.now()) };
        return history.at(version).map(|state| (state, version)).ok_or_else(|| {
            Refusal::page_expired(Continuation { version: None, ..continuation.clone() }.write())
        });
    }
    let Version::At(version) = options.version else { return Ok(history.now()) };
    let is_exact = match options.matching {
        Some(matching) => matching == Matching::Exact,
        // A page at another version could not be continued.
        None => is_paged,
    };
    if is_exact {
        return history.at(version).map(|state| (state, version)).ok_or_else(|| history.expired(version));
    }
    history.check(version)?;
    Ok(history.now())
}
