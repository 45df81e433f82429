//! What was received of each object: a UID and a number, never the object.

use std::collections::{BTreeMap, HashMap};

use kube::Resource;
use pod_index::PodUid;
use serde::de::DeserializeOwned;

use super::encoded::{DecodeProtobuf, Encoded, Encoding, Identity, unreadable};
use super::failure::{Failure, FailureKind};
use crate::memory::{self, Bounded, Reduced};
use crate::text;

/// A resource version. `None` if it is not a number, which no API server sends. It may then be another one each time.
pub(super) type Version = Option<u64>;

/// The resource versions of all objects.
pub(super) type Versions = HashMap<PodUid, Version>;

/// An object whose latest version cannot be decoded, or is too large to be decoded whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Undecodable {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Empty if it is unknown.
    pub(crate) field: String,
    /// Quotes nothing of the object.
    pub(crate) message: String,
    /// The latest version was emitted without a part of it.
    pub(crate) is_reduced: bool,
    /// A version was emitted: an earlier one, which stays, or a part of the latest.
    pub(super) is_held: bool,
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
pub(super) fn received<K>(
    object: Encoded<'_>,
    decode_protobuf: Option<DecodeProtobuf<K>>,
) -> Result<Received<K>, Failure>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let bounded = match object.encoding {
        Encoding::Json => memory::decode_within::<K>(memory::LIMIT, object.bytes),
        Encoding::Protobuf => {
            let decode = decode_protobuf.ok_or_else(|| unreadable("an object that was asked for in JSON"))?;
            decode(object.bytes)
        }
    };
    let (whole, field, message) = match bounded {
        Ok(Bounded { mut object, reduced: None }) => {
            memory::unmark(object.meta_mut(), None);
            let metadata = object.meta();
            let uid = PodUid::from(metadata.uid.as_deref().unwrap_or_default());
            let version = metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
            return Ok(Received { uid, version, object: Some(object), problem: None });
        }
        Ok(Bounded { object, reduced: Some(Reduced { field, message }) }) => (Some(object), field, message),
        Err((field, message)) => (None, text::shorten(&field), message),
    };
    let Identity { namespace, name, uid, version } = object.identity()?;
    if uid == "" || name.is_empty() {
        return Err(Failure::new(FailureKind::Doubt, format!("an object without a name {message}")));
    }
    let is_reduced = whole.is_some();
    let problem = Undecodable { namespace, name, field, message, is_reduced, is_held: is_reduced };
    Ok(Received { uid, version, object: whole, problem: Some(problem) })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[test]
    fn an_object_that_cannot_be_decoded_has_a_name_and_a_uid_or_is_a_failure() {
        for (metadata, is_received) in
            [(r#"{"name":"a","uid":"u"}"#, true), (r#"{"name":"a"}"#, false), (r#"{"uid":"u"}"#, false)]
        {
            let json = format!(r#"{{"metadata":{metadata},"spec":7}}"#);
            assert_eq!(received::<Pod>(Encoded::json(json.as_bytes()), None).is_ok(), is_received, "{json}");
        }
    }
}
