//! What was received of each object: a UID and a number, never the object.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kube::Resource;
use pod_index::PodUid;

use super::encoded::{Decoders, Encoded, Encoding, Identity, unreadable};
use super::failure::{Failure, FailureKind};
use super::version::Version;
use crate::memory::{self, Bounded, Reduced};
use crate::text;

/// An object whose latest version is not kept as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Undecodable {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Empty if it is unknown.
    pub(crate) field: String,
    /// Quotes nothing of the object.
    pub(crate) message: String,
    pub(crate) cause: Cause,
    /// A version was emitted: an earlier one, which stays, or a part of the latest.
    pub(super) is_held: bool,
}

/// Why the latest version of an object is not kept as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// It is not an object of its kind.
    Undecodable,
    /// It would take too much memory. It was emitted without a part of it.
    TooLarge,
    /// This program has a defect: it panicked on the object.
    Panicked,
}

/// The objects with a problem.
pub(super) type Undecoded = BTreeMap<PodUid, Undecodable>;

/// Whether a version of this object was emitted. `true` for an object that can be decoded.
pub(super) fn is_held(undecoded: &Undecoded, uid: &PodUid) -> bool {
    undecoded.get(uid).is_none_or(|object| object.is_held)
}

/// An object of a list or an event.
pub(super) struct Received<K> {
    pub(super) uid: PodUid,
    pub(super) version: Version,
    /// `None` if it cannot be decoded.
    pub(super) object: Option<K>,
    pub(super) problem: Option<Undecodable>,
}

/// Decodes an object. One without a name, a UID and a version is a failure.
pub(super) fn received<K>(object: Encoded<'_>, decoders: &Decoders<K>) -> Result<Received<K>, Failure>
where
    K: Resource<DynamicType = ()>,
{
    let decode = match object.encoding {
        Encoding::Json => decoders.json,
        Encoding::Protobuf => {
            decoders.protobuf.ok_or_else(|| unreadable("an object that was asked for in JSON"))?
        }
    };
    match unless_panic(|| decode(object.bytes)) {
        Ok(Ok(Bounded { object: mut whole, reduced: None })) => {
            memory::unmark(whole.meta_mut(), None);
            let metadata = whole.meta();
            let uid = PodUid::from(metadata.uid.as_deref().unwrap_or_default());
            let version = metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
            Ok(Received { uid, version, object: Some(whole), problem: None })
        }
        Ok(Ok(Bounded { object: part, reduced: Some(Reduced { field, message }) })) => {
            let faulty = faulty(object, Cause::TooLarge, field, message)?;
            Ok(faulty.with(Some(part)))
        }
        Ok(Err((field, message))) => {
            let faulty = faulty(object, Cause::Undecodable, text::shorten(&field), message)?;
            Ok(faulty.with(None))
        }
        Err(Panicked) => Ok(panicked(object)?.with(None)),
    }
}

/// This program has panicked, which is a defect.
pub(super) struct Panicked;

/// Runs what may panic: a decoder, or what an embedder does with an object. That one object is then lost, and nothing else.
pub(super) fn unless_panic<T>(run: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|_panic| Panicked)
}

/// What is wrong with an object, of which no more is known than its identity.
pub(super) struct Faulty {
    pub(super) uid: PodUid,
    pub(super) version: Version,
    pub(super) problem: Undecodable,
}

impl Faulty {
    /// With the part of the object that can be kept.
    fn with<K>(self, object: Option<K>) -> Received<K> {
        let Self { uid, version, mut problem } = self;
        problem.is_held = object.is_some();
        Received { uid, version, object, problem: Some(problem) }
    }
}

/// An object on which this program has panicked: its decoder, or what is done with each object.
pub(super) fn panicked(object: Encoded<'_>) -> Result<Faulty, Failure> {
    faulty(object, Cause::Panicked, String::new(), text::PANICKED.to_owned())
}

/// An object with a problem. One without a name and a UID is a failure.
fn faulty(object: Encoded<'_>, cause: Cause, field: String, message: String) -> Result<Faulty, Failure> {
    let Identity { namespace, name, uid, version } = object.identity()?;
    if uid == "" || name.is_empty() {
        return Err(Failure::new(FailureKind::Doubt, format!("an object without a name {message}")));
    }
    let problem = Undecodable { namespace, name, field, message, cause, is_held: false };
    Ok(Faulty { uid, version, problem })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    /// Whoever creates a pod must not make it look as if a part of it were missing.
    #[test]
    fn the_mark_of_what_was_left_out_is_taken_from_an_object_that_lacks_nothing() {
        let annotations = format!(r#"{{"{}":"forged","own":"b"}}"#, memory::LEFT_OUT);
        let json = format!(r#"{{"metadata":{{"name":"a","uid":"u","annotations":{annotations}}}}}"#);
        let received = received::<Pod>(Encoded::json(json.as_bytes()), &Decoders::of_json()).unwrap();
        let annotations = received.object.unwrap().metadata.annotations.unwrap();
        assert_eq!(annotations.keys().collect::<Vec<_>>(), ["own"]);
    }

    #[test]
    fn an_object_that_cannot_be_decoded_has_a_name_and_a_uid_or_is_a_failure() {
        for (metadata, is_received) in
            [(r#"{"name":"a","uid":"u"}"#, true), (r#"{"name":"a"}"#, false), (r#"{"uid":"u"}"#, false)]
        {
            let json = format!(r#"{{"metadata":{metadata},"spec":7}}"#);
            assert_eq!(
                received::<Pod>(Encoded::json(json.as_bytes()), &Decoders::of_json()).is_ok(),
                is_received,
                "{json}"
            );
        }
    }
}
