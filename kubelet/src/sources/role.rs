//! The roles of sources, and what each decides.
//!
//! A new role? The compiler then names each question of this file that is not answered for it, and the places of the merge
//! and of the agent that go by the role.

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
    /// whose rules suit it, such as [`Http`](Self::Http) for static pods that you manage yourself; see
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

// What the merge asks of a role. Each answer is a `match` without a `_`.
impl Source {
    /// Whether its pods are described by manifests: static pods, whose UIDs are not the kubelet's. Of two manifests with
    /// one name, that of the role that comes first in [`ALL`](Self::ALL) is used.
    pub(super) fn has_manifests(self) -> bool {
        match self {
            Self::File | Self::Http => true,
            Self::Kubelet | Self::Api => false,
        }
    }

    /// Whether it lists static pods themselves, and not their mirror pods.
    pub(super) fn lists_static_pods(self) -> bool {
        match self {
            Self::File | Self::Http | Self::Kubelet => true,
            Self::Api => false,
        }
    }

    /// Whether it lists mirror pods. A mirror pod of any other source is refused: whoever can make one, could replace a static
    /// pod by it.
    pub(super) fn lists_mirror_pods(self) -> bool {
        match self {
            Self::Api => true,
            Self::File | Self::Http | Self::Kubelet => false,
        }
    }

    /// Whether its report alone keeps a pod: a pod that no other source reports any more is published as this one has it. Not
    /// if it also lists what has ended, such as the old sandboxes of a container runtime: a pod that is gone would keep its IP.
    pub(super) fn keeps_pods(self) -> bool {
        match self {
            Self::File | Self::Http | Self::Kubelet | Self::Api => true,
        }
    }

    /// Whether it knows pods by the UIDs that they have on the node. A pod that it reports under a UID takes that UID from any
    /// manifest that keeps it; a manifest does so only for a pod of another name.
    pub(super) fn knows_uids_of_node(self) -> bool {
        match self {
            Self::Kubelet | Self::Api => true,
            Self::File | Self::Http => false,
        }
    }

    /// Whether it says that a pod has ended and holds nothing any more, by [`ENDED_ANNOTATION`](pod_index::ENDED_ANNOTATION). The
    /// merge removes that mark from the pods of all others.
    pub(super) fn says_what_has_ended(self) -> bool {
        match self {
            Self::Kubelet => true,
            Self::File | Self::Http | Self::Api => false,
        }
    }

    /// Whether a list may have two pods of one name: an old one that still ends, and its successor. Elsewhere, the second is
    /// a mistake.
    pub(super) fn may_repeat_names(self) -> bool {
        match self {
            Self::Kubelet => true,
            Self::File | Self::Http | Self::Api => false,
        }
    }

    /// Whether its pods already have the kubelet's marks: where they are from, and since when. The merge marks all others itself,
    /// so that no pod's author can, and then every pod of a role other than the API server's counts as static.
    pub(super) fn has_marks_of_kubelet(self) -> bool {
        match self {
            Self::Kubelet => true,
            Self::File | Self::Http | Self::Api => false,
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
