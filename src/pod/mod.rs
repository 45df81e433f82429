//! The metadata of a pod, and the two predicates of the kubelet: static and mirror.
//!
//! This module knows annotations and names. It does not depend on indices, snapshots or threads.

mod claimed_key;
mod keys;
mod life;
#[cfg(feature = "k8s-openapi")]
mod openapi;
mod simple;
#[cfg(feature = "k8s-openapi")]
pub mod workload;

pub(crate) use claimed_key::{ClaimedKeyRef, Lasts, OwnedClaimedKey, ip_number};
pub(crate) use keys::{Claim, Claims, Strength};
pub use keys::{CustomKeyKind, MAX_KEY_LENGTH, MAX_KEYS_PER_POD, PodKeys};
pub(crate) use life::nanos;
pub use life::{Life, Time};
#[cfg(feature = "k8s-openapi")]
pub use openapi::claim_keys;
pub use simple::{SimpleContainer, SimplePod};

/// Names the pod's source: `file`, `http` or `api`. A pod with another value than `api` is static.
///
/// The kubelet's `ConfigSourceAnnotationKey` (`pkg/kubelet/types/pod_update.go`).
pub const CONFIG_SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";

/// Marks a mirror pod; its value is the config hash of the static pod it mirrors.
///
/// The kubelet's `ConfigMirrorAnnotationKey` (`v1.MirrorPodAnnotationKey`).
pub const CONFIG_MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The config hash of a static pod. Equal to its UID for every pod from a source of this project.
///
/// The kubelet's `ConfigHashAnnotationKey` (`pkg/kubelet/types/pod_update.go`).
pub const CONFIG_HASH_ANNOTATION: &str = "kubernetes.io/config.hash";

/// When a source first saw the pod, as RFC 3339.
///
/// The kubelet's `ConfigFirstSeenAnnotationKey` (`pkg/kubelet/types/pod_update.go`).
pub const CONFIG_SEEN_ANNOTATION: &str = "kubernetes.io/config.seen";

/// Marks a pod that holds no IP any more. Its containers have ended and its sandbox is gone, although the kubelet still lists
/// it; or its manifest is still there, although the kubelet no longer lists it. Set by a source that the kubelet tells so, and
/// by nobody else.
pub const ENDED_ANNOTATION: &str = "pod-index/ended";

/// The value of [`CONFIG_SOURCE_ANNOTATION`] that means "from the API server".
///
/// The kubelet's `ApiserverSource` (`pkg/kubelet/types/pod_update.go`).
pub const API_SERVER_SOURCE: &str = "api";

/// Which of the kubelet's two sets a pod belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum PodKind {
    /// The pods that run on the node.
    Pod,
    /// The API server's mirrors of static pods.
    Mirror,
}

impl PodKind {
    pub(crate) fn of<P: PodMeta>(pod: &P) -> Self {
        if is_mirror_pod(pod) { Self::Mirror } else { Self::Pod }
    }
}

/// The metadata by which the index finds a pod.
///
/// Implement it for whatever your agent stores: the full Kubernetes object, its metadata, or your own smaller
/// type. The index needs nothing else. To find pods by container ID, by IP or by custom keys, also implement
/// [`keys`](Self::keys).
///
/// The index reads the annotations [`CONFIG_SOURCE_ANNOTATION`] and [`CONFIG_MIRROR_ANNOTATION`];
/// [`is_mirror_pod_of`] also reads [`CONFIG_HASH_ANNOTATION`]. A type that returns `None` for all of them has
/// neither static nor mirror pods. To be read from several threads, a pod must be `Send` and `Sync`.
///
/// # Results that change
/// Each method must return the same for as long as an object is in the index, also as a removed pod. Why? The index keeps no list of
/// a pod's keys. When a pod is replaced or removed, it asks the old object again which entries to take away. So for a change, store
/// a new object under the same UID. What no method returns may change in place.
///
/// If `uid`, `name`, `namespace`, `annotation`, `keys` or `life` returns something else than before, nothing panics and nothing is
/// reported, but:
///
/// - Lookups may miss that pod.
/// - They may find it by a former UID, name or key, even after it was removed: until the next
///   [`set_pods`](crate::Writer::set_pods) at the latest, and among the removed pods and in lookups at a time for longer.
/// - The same may happen to each pod that shares a UID, a name or a key with it, a former or a present one: lookups may miss it, or
///   find one of the two for the other. Followers may be told of a change of the wrong one.
/// - [`ignored_key_count`](crate::Snapshot::ignored_key_count) and [`key_counts`](crate::Snapshot::key_counts) may be wrong until that
///   `set_pods`.
///
/// A pod that shares none of these with it is found as before, as with a key that changes inside a
/// [`HashMap`](std::collections::HashMap).
///
/// # Examples
/// ```
/// struct Slim { uid: String, name: String, namespace: String }
///
/// impl pod_index::PodMeta for Slim {
///     fn uid(&self) -> &str { &self.uid }
///     fn name(&self) -> &str { &self.name }
///     fn namespace(&self) -> &str { &self.namespace }
///     fn annotation(&self, _key: &str) -> Option<&str> { None }
/// }
/// ```
pub trait PodMeta {
    /// `metadata.uid`; empty if absent.
    fn uid(&self) -> &str;
    /// `metadata.name`; empty if absent.
    fn name(&self) -> &str;
    /// `metadata.namespace`; empty if absent.
    fn namespace(&self) -> &str;
    /// The value of one annotation, if the pod has it. An empty value is `Some("")`.
    fn annotation(&self, key: &str) -> Option<&str>;
    /// Number of ephemeral containers in the pod's spec.
    fn ephemeral_container_count(&self) -> usize {
        0
    }
    /// Names the additional keys of the pod, and the strength of its claim to them. By default it has none.
    ///
    /// Called when the pod is added, replaced or removed, and when another pod claims a key that it holds: then only the strength
    /// is read, and the keys are not listed again. Not called for mirror pods.
    ///
    /// # Consistency
    /// Several pods may name one key: a finished pod keeps its IP in its status while another pod already
    /// uses it. The result of a lookup depends only on the set of pods, not on the order in which they were
    /// added: pods that have not [finished](PodKeys::finished) come first, then those that are not being
    /// [deleted](PodKeys::terminating), then those [created](PodKeys::created) later, then those with the smaller UID.
    ///
    /// # Examples
    /// ```
    /// use pod_index::{CustomKeyKind, PodKeys};
    ///
    /// const OWNER: CustomKeyKind = CustomKeyKind(1);
    ///
    /// struct Slim { uid: String, ip: std::net::IpAddr, owner: String, created: i64 }
    ///
    /// impl pod_index::PodMeta for Slim {
    ///     fn uid(&self) -> &str { &self.uid }
    ///     fn name(&self) -> &str { &self.uid }
    ///     fn namespace(&self) -> &str { "default" }
    ///     fn annotation(&self, _key: &str) -> Option<&str> { None }
    ///     fn keys(&self, keys: &mut PodKeys<'_>) {
    ///         keys.ip(self.ip);
    ///         keys.custom_key(OWNER, &self.owner);
    ///         keys.created(self.created);
    ///     }
    /// }
    ///
    /// let (mut writer, reader) = pod_index::new();
    /// for (uid, created) in [("u1", 100), ("u2", 200)] {
    ///     let (ip, owner) = ([10, 0, 0, 7].into(), "Job/backup".into());
    ///     writer.upsert_pod(Slim { uid: uid.into(), ip, owner, created })?;
    /// }
    /// let pods = reader.load();
    /// assert_eq!(pods.pod_by_ip([10, 0, 0, 7].into()).unwrap().uid, "u2");
    /// assert_eq!(pods.pods_by_custom_key(OWNER, b"Job/backup").count(), 2);
    /// # Ok::<(), pod_index::Error>(())
    /// ```
    fn keys(&self, keys: &mut PodKeys<'_>) {
        let _ = keys;
    }
    /// What the object itself says about the times at which the pod held its IPs and its name. By default nothing.
    ///
    /// Called only by an index that [keeps times](crate::Options::keep_times), and by its lookups
    /// [at a time](crate::Snapshot::at). Without this, the index goes by when it learnt of the pod and of its end.
    fn life(&self) -> Life {
        Life::default()
    }
}

/// Whether the pod came from a source other than the API server.
///
/// True if [`CONFIG_SOURCE_ANNOTATION`] is present and is not [`API_SERVER_SOURCE`]. A pod without the
/// annotation is not static.
///
/// # Complexity
/// One annotation lookup; no allocation.
///
/// # Examples
/// ```
/// # struct Annotated(&'static str, &'static str);
/// # impl pod_index::PodMeta for Annotated {
/// #     fn uid(&self) -> &str { "u" }
/// #     fn name(&self) -> &str { "n" }
/// #     fn namespace(&self) -> &str { "ns" }
/// #     fn annotation(&self, key: &str) -> Option<&str> { (key == self.0).then_some(self.1) }
/// # }
/// assert!(pod_index::is_static_pod(&Annotated("kubernetes.io/config.source", "file")));
/// assert!(!pod_index::is_static_pod(&Annotated("kubernetes.io/config.source", "api")));
/// ```
///
/// Kubelet: `IsStaticPod` (`pkg/kubelet/types/pod_update.go`).
#[doc(alias = "IsStaticPod")]
#[must_use]
pub fn is_static_pod<P: PodMeta + ?Sized>(pod: &P) -> bool {
    pod.annotation(CONFIG_SOURCE_ANNOTATION).is_some_and(|source| source != API_SERVER_SOURCE)
}

/// Whether the pod is the API server's mirror of a static pod.
///
/// True if [`CONFIG_MIRROR_ANNOTATION`] is present with any value, including `""`.
///
/// # Complexity
/// One annotation lookup; no allocation.
///
/// # Examples
/// ```
/// # struct Annotated(&'static str, &'static str);
/// # impl pod_index::PodMeta for Annotated {
/// #     fn uid(&self) -> &str { "u" }
/// #     fn name(&self) -> &str { "n" }
/// #     fn namespace(&self) -> &str { "ns" }
/// #     fn annotation(&self, key: &str) -> Option<&str> { (key == self.0).then_some(self.1) }
/// # }
/// assert!(pod_index::is_mirror_pod(&Annotated("kubernetes.io/config.mirror", "")));
/// ```
///
/// Kubelet: `IsMirrorPod` (`pkg/kubelet/types/pod_update.go`).
#[doc(alias = "IsMirrorPod")]
#[must_use]
pub fn is_mirror_pod<P: PodMeta + ?Sized>(pod: &P) -> bool {
    pod.annotation(CONFIG_MIRROR_ANNOTATION).is_some()
}

/// Whether `mirror` is the mirror of `pod` *as `pod` is now*: it has the same name and namespace, and carries
/// the pod's config hash.
///
/// An absent [`CONFIG_HASH_ANNOTATION`] counts as `""`. Does not check whether `pod` is static.
///
/// # Complexity
/// Two annotation lookups and three string comparisons; no allocation.
///
/// # Examples
/// ```
/// # struct Annotated(&'static str, &'static str);
/// # impl pod_index::PodMeta for Annotated {
/// #     fn uid(&self) -> &str { "u" }
/// #     fn name(&self) -> &str { "n" }
/// #     fn namespace(&self) -> &str { "ns" }
/// #     fn annotation(&self, key: &str) -> Option<&str> { (key == self.0).then_some(self.1) }
/// # }
/// let pod = Annotated("kubernetes.io/config.hash", "abc");
/// assert!(pod_index::is_mirror_pod_of(&Annotated("kubernetes.io/config.mirror", "abc"), &pod));
/// assert!(!pod_index::is_mirror_pod_of(&Annotated("kubernetes.io/config.mirror", "stale"), &pod));
/// ```
///
/// Kubelet: `IsMirrorPodOf` (`pkg/kubelet/pod/mirror_client.go`).
#[doc(alias = "IsMirrorPodOf")]
#[must_use]
pub fn is_mirror_pod_of<M: PodMeta + ?Sized, P: PodMeta + ?Sized>(mirror: &M, pod: &P) -> bool {
    mirror.name() == pod.name()
        && mirror.namespace() == pod.namespace()
        && mirror
            .annotation(CONFIG_MIRROR_ANNOTATION)
            .is_some_and(|hash| hash == pod.annotation(CONFIG_HASH_ANNOTATION).unwrap_or_default())
}
