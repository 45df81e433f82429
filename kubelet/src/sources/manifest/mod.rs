//! Decodes a manifest into pods as the kubelet would run them.
//!
//! This module knows YAML, JSON, the kubelet's defaults and its validation. It does not read files or
//! sockets: the caller passes bytes and their origin.
//!
//! # Accepted
//! YAML or JSON. YAML may have any number of documents, each of which must be a `v1` `Pod`. A URL may also
//! serve a `PodList` or `List` of pods. As with the kubelet, `<<` merges, a number with a leading `0` is octal
//! (`defaultMode: 0644`), fields unknown to this Kubernetes version are ignored, and the last of two equal keys
//! counts; both are reported as warnings. An unquoted `1`, `true` or `yes` is not a string, so `value: 1` of an
//! environment variable is refused.
//!
//! # Defaults
//! | field | becomes |
//! |---|---|
//! | `metadata.uid` | if absent, 32 hex digits hashed over the pod, the node and the file's path; or over the pod and the URL |
//! | `metadata.name` | `<name>-<node name in lower case>` |
//! | `metadata.namespace` | `default` if absent |
//! | `spec.nodeName` | the node |
//! | `spec.tolerations` | from files: also `operator: Exists, effect: NoExecute` |
//! | `status` | `phase: Pending` and nothing else: a manifest is no evidence of IPs and container IDs |
//! | annotation `kubernetes.io/config.hash` | the UID, even an explicit one |
//! | annotation `kubernetes.io/config.source` | `file` or `http` |
//! | annotation `kubernetes.io/config.seen` | the time of reading, RFC 3339 |
//!
//! Unlike in the kubelet, the API's own defaults (`restartPolicy`, `dnsPolicy`, `imagePullPolicy` and so on)
//! are not filled in: nothing here runs the pod, and they would only hide what the manifest says.
//!
//! # Refused
//! * Names, labels, annotations, containers, ports and volumes that the API server's validation would refuse.
//! * Every reference to an object of the API server.
//! * Many aliases and many documents: see [`decode`] for the limits.
//! * Unlike in the kubelet, a manifest annotated as a mirror pod. The kubelet would index it as a mirror,
//!   never run it, and try to delete it every two seconds.

mod api_objects;
mod decode;
mod defaults;
mod field;
mod origin;
mod validate;

pub use decode::{Decoded, decode};
pub use origin::Origin;
