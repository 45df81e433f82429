//! Pods in protobuf, each once for all answers that have yet to send it.
//!
//! A client that does not read keeps the bytes of what it asked for. If each call had bytes of its own, a thousand calls for one
//! large pod would take a gigabyte.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hyper::body::Bytes;
use pod_index::{PodMeta, PodUid};
use pod_index_kubelet::records::Record;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::wire::{Form, Reason, Status, encoded};
use crate::api::client::ClientLimits;

/// Maximum number of bytes of all encoded pods.
const SPACE: usize = 64 << 20;
/// Known encodings that are gone, before they are forgotten.
const GONE: usize = 256;

/// The pods that are encoded now. They are forgotten when the last answer has sent them.
#[derive(Debug)]
pub(super) struct Encodings {
    by_pod: Mutex<HashMap<EncodingKey, Weak<Encoded>>>,
    space: Arc<Semaphore>,
}

/// Of which pod, and in which form.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct EncodingKey {
    pod: PodUid,
    form: Form,
}

/// An encoded pod.
#[derive(Debug)]
struct Encoded {
    pod: Arc<Record>,
    bytes: Vec<u8>,
    _space: OwnedSemaphorePermit,
}

/// What owns the bytes that are handed to connections.
struct SharedBytes(Arc<Encoded>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Encodings {
    pub(super) fn new() -> Self {
        Self { by_pod: Mutex::default(), space: Arc::new(Semaphore::new(SPACE)) }
    }

    /// The pod in this form, encoded in this client's turn.
    pub(super) async fn in_turn(
        &self,
        limits: &ClientLimits,
        pod: &Arc<Record>,
        form: Form,
    ) -> Result<Bytes, Status> {
        let ending = Status::new(Reason::Ending, "the agent is shutting down");
        limits.in_turn(|| self.encoded(pod, form)).await.ok_or(ending)?
    }

    fn encoded(&self, pod: &Arc<Record>, form: Form) -> Result<Bytes, Status> {
        let mut by_pod = self.by_pod.lock().unwrap_or_else(PoisonError::into_inner);
        let key = EncodingKey { pod: PodUid::from(pod.uid()), form };
        if let Some(encoded) = by_pod.get(&key).and_then(Weak::upgrade)
            && Arc::ptr_eq(&encoded.pod, pod)
        {
            return Ok(Bytes::from_owner(SharedBytes(encoded)));
        }
        let bytes = encoded(pod, form);
        let space = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let space = Arc::clone(&self.space).try_acquire_many_owned(space).map_err(|_| {
            Status::new(Reason::UnreadBytes, "too much of what clients asked for has yet to be read")
        })?;
        let encoded = Arc::new(Encoded { pod: Arc::clone(pod), bytes, _space: space });
        if by_pod.len() >= GONE {
            by_pod.retain(|_, encoded| encoded.strong_count() > 0);
        }
        by_pod.insert(key, Arc::downgrade(&encoded));
        Ok(Bytes::from_owner(SharedBytes(encoded)))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;
    use crate::pipeline::records::alone;

    fn pod(uid: &str) -> Arc<Record> {
        let uid = Some(uid.to_owned());
        let metadata = ObjectMeta { uid, ..ObjectMeta::default() };
        alone(Pod { metadata, ..Pod::default() })
    }

    #[test]
    fn a_pod_is_encoded_once_for_all_that_have_yet_to_send_it() {
        let encodings = Encodings::new();
        let (old, new) = (pod("u"), pod("u"));
        let mut held = vec![encodings.encoded(&old, Form::Listed).unwrap()];
        let length = held[0].len();
        held.extend((0..1000).map(|_| encodings.encoded(&old, Form::Listed).unwrap().slice(1..)));
        assert_eq!(encodings.space.available_permits(), SPACE - length);
        // Another version, and another form.
        held.push(encodings.encoded(&new, Form::Listed).unwrap());
        assert_eq!(encodings.space.available_permits(), SPACE - 2 * length);
        assert_ne!(encodings.encoded(&new, Form::Added).unwrap(), held[0]);
        // A part of the bytes keeps all of them.
        held.truncate(2);
        drop(held.swap_remove(0));
        assert_eq!(encodings.space.available_permits(), SPACE - length);
        drop(held);
        assert_eq!(encodings.space.available_permits(), SPACE);
    }

    #[test]
    fn the_bytes_of_all_encodings_are_limited_and_what_is_gone_is_forgotten() {
        let encodings = Encodings::new();
        for number in 0..10 * GONE {
            encodings.encoded(&pod(&number.to_string()), Form::Listed).unwrap();
        }
        assert!(encodings.by_pod.lock().unwrap().len() <= GONE);
        let others = Arc::clone(&encodings.space).try_acquire_many_owned(u32::try_from(SPACE).unwrap());
        let refused = encodings.encoded(&pod("u"), Form::Listed).unwrap_err();
        assert_eq!(refused.reason, Some(Reason::UnreadBytes));
        drop(others);
        encodings.encoded(&pod("u"), Form::Listed).unwrap();
    }
}
