//! The answer to one query: one line of JSON, written by the server and read by the client.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pod_index_kubelet::workload;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::pod_api::owners::Owners;

/// The start of a line whose pod was not found. The client looks for it instead of parsing each line.
pub(crate) const NOT_FOUND: &[u8] = br#"{"found":false"#;

/// One answer. All fields of the pod are `None` if it was not found.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer<'a> {
    /// Must be the first field; see [`NOT_FOUND`].
    pub(crate) found: bool,
    #[serde(borrow)]
    pub(crate) query: Cow<'a, str>,
    /// `None` if the query is not an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<Kind>,
    /// Why no pod was found.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Cow<'a, str>>,
    /// The key that found the pod. For a cgroup, for example, the pod's UID or the container's ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) found_by: Option<Key>,
    /// How the query contradicts the pod that was found.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub(crate) contradiction: Option<Cow<'a, str>>,
    /// The time of the event, in RFC 3339, if the query has one. Then the answer is of that time.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<Cow<'a, str>>,
    /// Bounds of when the pod got the key, and lost it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<Between<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<Between<'a>>,
    /// The pods that may have had the key at the time, the likeliest one first, if none is certain.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) candidates: Vec<CandidatePod<'a>>,
    /// The times between which the agent knows of all pods that had a key.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) known: Option<Between<'a>>,
    /// Other pods that claim the key now.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) contested: Vec<Text<'a>>,
    /// When the pod was removed, in RFC 3339. `None` if it still exists.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub(crate) removed: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<Cow<'a, str>>,
    /// The UID under which the node knows the pod. `None` for a mirror pod without a static pod.
    #[serde(
        borrow,
        default,
        deserialize_with = "text",
        rename = "podUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) pod_uid: Option<Cow<'a, str>>,
    #[serde(
        borrow,
        default,
        deserialize_with = "text",
        rename = "mirrorUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) mirror_uid: Option<Cow<'a, str>>,
    /// The container, if the query identifies one.
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub(crate) container: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<Owner<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) workload: Option<Workload<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) labels: Option<Labels<'a>>,
}

/// A text without escapes is borrowed, because a client reads hundreds of thousands of answers a second. `serde` borrows
/// only in a field whose type is `Cow` itself.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

fn text<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'a, str>>, D::Error> {
    Ok(Option::<Text<'a>>::deserialize(deserializer)?.map(|Text(text)| text))
}

/// The pod's labels.
#[derive(Debug)]
pub(crate) enum Labels<'a> {
    /// As the server has them.
    Of(&'a BTreeMap<String, String>),
    /// As the client reads them.
    Read(Vec<(Text<'a>, Text<'a>)>),
}

impl Labels<'_> {
    /// The labels, in the server's order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let (of, read) = match self {
            Self::Of(labels) => (Some(labels.iter()), None),
            Self::Read(labels) => (None, Some(labels.iter())),
        };
        let of = of.into_iter().flatten().map(|(key, value)| (&**key, &**value));
        of.chain(read.into_iter().flatten().map(|(Text(key), Text(value))| (&**key, &**value)))
    }
}

impl Serialize for Labels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Labels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Entries<'a> {
            type Value = Labels<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut entries: M) -> Result<Labels<'a>, M::Error> {
                let mut labels = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    labels.push(entry);
                }
                Ok(Labels::Read(labels))
            }
        }
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// Bounds of a time, in RFC 3339. `None`: there is none.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Between<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) earliest: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) latest: Option<Cow<'a, str>>,
}

/// A pod that may have had a key.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CandidatePod<'a> {
    #[serde(borrow)]
    pub(crate) namespace: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    #[serde(borrow, rename = "podUID")]
    pub(crate) pod_uid: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) from: Between<'a>,
    #[serde(borrow)]
    pub(crate) until: Between<'a>,
}

/// The controller that created the pod.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Owner<'a> {
    #[serde(borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
}

/// The Deployment, `CronJob` or other controller that a person created.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Workload<'a> {
    #[serde(borrow)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    /// Whether kind and name follow from names and labels alone.
    pub(crate) derived: bool,
}

impl<'a> Workload<'a> {
    pub(crate) fn of(pod: &'a Pod, owners: &Owners) -> Option<Self> {
        let Some(read) = owners.of(pod) else {
            let workload = workload::Workload::of::<ObjectMeta>(&pod.metadata, None)?;
            let (kind, name) = (workload.kind.into(), workload.name.into());
            return Some(Self { kind, name, derived: workload.derived });
        };
        let workload = workload::Workload::of(&pod.metadata, Some(&*read))?;
        let (kind, name) = (workload.kind.to_owned().into(), workload.name.to_owned().into());
        Some(Self { kind, name, derived: workload.derived })
    }
}

/// The kinds of identities.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    Uid,
    ContainerId,
    Cgroup,
    LogPath,
    LogLink,
    Ip,
    Pid,
    Name,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 8] = [
        Self::Uid,
        Self::ContainerId,
        Self::Cgroup,
        Self::LogPath,
        Self::LogLink,
        Self::Ip,
        Self::Pid,
        Self::Name,
    ];

    /// The value of the metric label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Uid => "uid",
            Self::ContainerId => "container_id",
            Self::Cgroup => "cgroup",
            Self::LogPath => "log_path",
            Self::LogLink => "log_link",
            Self::Ip => "ip",
            Self::Pid => "pid",
            Self::Name => "name",
        }
    }

    /// The name to show to users.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Uid => "UID",
            Self::ContainerId => "container ID",
            Self::Cgroup => "cgroup",
            Self::LogPath => "log path",
            Self::LogLink => "log link",
            Self::Ip => "IP",
            Self::Pid => "PID",
            Self::Name => "name",
        }
    }
}

/// The keys of the index.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Key {
    Uid,
    MirrorUid,
    ContainerId,
    Ip,
    Name,
    /// The name, although the query has a container ID too, which no pod has.
    NameOnly,
}

impl Key {
    /// The name to show to users.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Uid => "UID",
            Self::MirrorUid => "mirror UID",
            Self::ContainerId => "container ID",
            Self::Ip => "IP",
            Self::Name => "name",
            Self::NameOnly => "name only",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_without_copies_unless_it_has_escapes() {
        let line = r#"{"found":true,"query":"a\"b","namespace":"shop","podUID":"u","labels":{"app":"web","q":"\""}}"#;
        let answer: Answer<'_> = serde_json::from_str(line).unwrap();
        assert_eq!(answer.query, "a\"b");
        for text in [&answer.namespace, &answer.pod_uid] {
            assert!(matches!(text, Some(Cow::Borrowed(_))), "{text:?}");
        }
        let Some(Labels::Read(labels)) = &answer.labels else { panic!("{answer:?}") };
        let [(Text(Cow::Borrowed("app")), Text(Cow::Borrowed("web"))), (_, Text(Cow::Owned(_)))] =
            &labels[..]
        else {
            panic!("{labels:?}")
        };
        assert_eq!(serde_json::to_string(&answer).unwrap(), line);
    }
}
