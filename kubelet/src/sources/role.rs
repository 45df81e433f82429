//! The roles of sources, and what each decides.
//!
//! A new role? The compiler then names each question of this file that is not answered for it, and the places of the merge
//! and of the agent that go by the role. The first question is what it lists; most others follow from that.

use std::fmt;

use serde::Serialize;

/// Defines the roles, their names and the list of all of them from the same lines.
macro_rules! roles {
    ($(#[$of_enum:meta])* pub enum $name:ident { $($(#[$of_role:meta])* $role:ident = $word:expr,)+ }) => {
        $(#[$of_enum])*
        pub enum $name {
            $($(#[$of_role])* $role,)+
        }

        impl $name {
            /// Every source.
            pub const ALL: [Self; [$(Self::$role),+].len()] = [$(Self::$role),+];

            /// The source's name: the value of the annotation `kubernetes.io/config.source`, or `kubelet`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$role => $word,)+
                }
            }
        }
    };
}

roles! {
    /// A role that a source has in the [merge](super::Merge): it decides which of two sources counts if both have the same pod.
    ///
    /// There are fewer roles than modules: a kubelet's port and its socket have the same role. A source of your own takes the one
    /// whose rules suit it: [`Api`](Self::Api) for ordinary pods, [`Http`](Self::Http) for static pods that you manage yourself; see
    /// [`StatusWriter`](super::StatusWriter).
    ///
    /// **One role, one source.** Two sources with the same role replace each other's pods: the merge keeps one set of pods for each
    /// role. If you have two places for static pods that you manage yourself, make one source of them.
    ///
    /// **A role decides whether its pods are static.** The merge writes the role's name into the annotation
    /// `kubernetes.io/config.source`, and every pod with a name there other than `api` [is a static
    /// pod](pod_index::is_static_pod). [`Kubelet`](Self::Kubelet) is the exception: a kubelet lists pods of all kinds, so its pods
    /// keep the annotation that they have.
    ///
    /// # Examples
    /// ```
    /// use pod_index_kubelet::sources::Source;
    ///
    /// assert_eq!(Source::ALL.map(Source::as_str), ["file", "http", "kubelet", "api"]);
    /// ```
    ///
    /// Kubelet: `FileSource`, `HTTPSource`, `ApiserverSource` (`pkg/kubelet/types/pod_update.go`).
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Source {
        /// A manifest file, or a directory of manifests.
        File = "file",
        /// A URL that serves manifests.
        Http = "http",
        /// The kubelet of this node, which lists the pods it runs.
        Kubelet = "kubelet",
        /// The API server.
        Api = pod_index::API_SERVER_SOURCE,
    }
}

/// What a role lists. Most of what the merge asks of a role follows from this, so that two answers cannot contradict each other: a role
/// whose pods count as static, and that says the UIDs of the node, cannot be written.
#[derive(Clone, Copy)]
enum Listing {
    /// Manifests, one for each static pod, without what the kubelet adds to them.
    Manifests,
    /// The pods that are on the node, static ones themselves among them, with the UIDs and the marks that the kubelet has given them. An
    /// old pod that still ends is listed beside its successor, and what has ended is marked so.
    PodsOfNode,
    /// The API server's objects: of a static pod, the mirror pod.
    ApiObjects,
}

impl Source {
    /// A new role takes one of these, or gets one of its own, for which each question below has to be answered.
    fn listing(self) -> Listing {
        match self {
            Self::File | Self::Http => Listing::Manifests,
            Self::Kubelet => Listing::PodsOfNode,
            Self::Api => Listing::ApiObjects,
        }
    }
}

// What the merge asks of a role. Each answer is a `match` without a `_`.
impl Source {
    /// Whether its pods are described by manifests: static pods, whose UIDs are not the kubelet's. Of two manifests with
    /// one name, that of the role that comes first in [`ALL`](Self::ALL) is used.
    pub(super) fn has_manifests(self) -> bool {
        match self.listing() {
            Listing::Manifests => true,
            Listing::PodsOfNode | Listing::ApiObjects => false,
        }
    }

    /// Whether it lists static pods themselves, and not their mirror pods.
    pub(super) fn lists_static_pods(self) -> bool {
        match self.listing() {
            Listing::Manifests | Listing::PodsOfNode => true,
            Listing::ApiObjects => false,
        }
    }

    /// Whether it lists the pods that are on the node: of each static pod, the one that runs.
    pub(super) fn lists_pods_of_node(self) -> bool {
        match self.listing() {
            Listing::PodsOfNode => true,
            Listing::Manifests | Listing::ApiObjects => false,
        }
    }

    /// Whether it lists mirror pods. A mirror pod of any other source is refused: whoever can make one, could replace a static
    /// pod by it.
    pub(super) fn lists_mirror_pods(self) -> bool {
        match self.listing() {
            Listing::ApiObjects => true,
            Listing::Manifests | Listing::PodsOfNode => false,
        }
    }

    /// Whether it says that a pod has ended and holds nothing any more, by [`ENDED_ANNOTATION`](pod_index::ENDED_ANNOTATION). The
    /// merge removes that mark from the pods of all others.
    pub(super) fn says_what_has_ended(self) -> bool {
        match self.listing() {
            Listing::PodsOfNode => true,
            Listing::Manifests | Listing::ApiObjects => false,
        }
    }

    /// Whether a list may have two pods of one name: an old one that still ends, and its successor. Elsewhere, the second is
    /// a mistake.
    pub(super) fn may_repeat_names(self) -> bool {
        match self.listing() {
            Listing::PodsOfNode => true,
            Listing::Manifests | Listing::ApiObjects => false,
        }
    }

    /// Whether its pods already have the kubelet's marks: where they are from, and since when. The merge marks all others itself,
    /// so that no pod's author can, and then every pod of a role other than the API server's counts as static.
    pub(super) fn has_marks_of_kubelet(self) -> bool {
        match self.listing() {
            Listing::PodsOfNode => true,
            Listing::Manifests | Listing::ApiObjects => false,
        }
    }

    /// Whether it knows pods by the UIDs that they have on the node: itself, or, of static pods, from their mirror pods. A manifest
    /// alone does not. The kubelet may have given its pod another UID than the one that is computed from it.
    ///
    /// A source of such a role decides whether the UIDs of an earlier run still hold. In the [merge](super::Merge), a pod that it reports
    /// under a UID takes that UID from any manifest that keeps it; a manifest does so only for a pod of another name.
    ///
    /// # Examples
    /// ```
    /// use pod_index_kubelet::sources::Source;
    ///
    /// assert_eq!(Source::ALL.map(Source::knows_uids_of_node), [false, false, true, true]);
    /// ```
    #[must_use]
    pub fn knows_uids_of_node(self) -> bool {
        match self.listing() {
            Listing::PodsOfNode | Listing::ApiObjects => true,
            Listing::Manifests => false,
        }
    }

    /// Whether its report alone keeps a pod: a pod that no other source reports any more is published as this one has it. Not
    /// if it also lists what has ended, such as the old sandboxes of a container runtime: a pod that is gone would keep its IP.
    pub(super) fn keeps_pods(self) -> bool {
        match self {
            Self::File | Self::Http | Self::Kubelet | Self::Api => true,
        }
    }

    /// Whether its pods have their whole status, as the kubelet writes it. A manifest has none, and a container runtime knows only a
    /// part.
    pub(super) fn has_whole_status(self) -> bool {
        match self {
            Self::Kubelet | Self::Api => true,
            Self::File | Self::Http => false,
        }
    }

    /// Whether the kubelet should be asked when it reports a change of the node's pods.
    pub(super) fn may_know_before_kubelet(self) -> bool {
        match self {
            Self::Kubelet => false,
            Self::File | Self::Http | Self::Api => true,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
