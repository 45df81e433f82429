//! The designs that are measured beside each other, behind one trait.
//!
//! All but two hold one map, from UID to pod: that is the least a reader needs. The index and [`Kubelet`] keep all five
//! maps of the kubelet's pod manager, which shows in their writes.

mod index;
#[cfg(feature = "peers")]
mod kube;
#[cfg(feature = "peers")]
mod kubelet;
#[cfg(feature = "peers")]
mod left_right;
#[cfg(feature = "peers")]
mod locked;
#[cfg(feature = "peers")]
mod maps;

use std::sync::Arc;

pub use self::index::{Cached, Load, Parsed};
#[cfg(feature = "peers")]
pub use self::kube::KubeStore;
#[cfg(feature = "peers")]
pub use self::kubelet::Kubelet;
#[cfg(feature = "peers")]
pub use self::left_right::LeftRight;
#[cfg(feature = "peers")]
pub use self::locked::{ParkingLotRwLock, StdRwLock};
#[cfg(feature = "peers")]
pub use self::maps::{DashMap, Papaya};
use crate::bare::Bare;
use crate::workload::Pod;

/// A way to share a map of pods between threads.
pub trait Design {
    /// What the reports call it.
    const NAME: &'static str;
    /// Whether a writer may be at work beside the readers.
    const CONCURRENT: bool = true;
    /// The form in which its readers want a UID.
    type Key: Clone + Send + Sync + 'static;
    /// What each reading thread has of its own.
    type Reader: Read<Self::Key> + Clone + Send + 'static;
    /// What the one writing thread has.
    type Writer: Write + Send + 'static;

    /// Both ends of a map of these pods.
    fn new(pods: Vec<Arc<Pod>>) -> (Self::Writer, Self::Reader);
    /// The UID of a pod, allocated apart from the map.
    fn key(pod: &Pod) -> Self::Key;
}

/// Look-ups of one thread.
pub trait Read<K> {
    /// Looks a pod up and tells where it found it; 0 if nowhere. The pod is borrowed wherever the design can lend it.
    fn find(&mut self, key: &K) -> usize;
    /// What an agent does that wants all pods and all translations of one moment; tells how many.
    fn scan(&mut self) -> usize;
}

/// Writes.
pub trait Write {
    /// Stores a pod.
    fn update(&mut self, pod: &Arc<Pod>);
    /// Takes a pod out.
    fn remove(&mut self, pod: &Arc<Pod>);
    /// Replaces everything.
    fn set(&mut self, pods: Vec<Arc<Pod>>);
    /// Stores pods, under one lock or in one publication where the design has such a thing.
    fn batch(&mut self, pods: &[Arc<Pod>]) {
        pods.iter().for_each(|pod| self.update(pod));
    }
}

/// Something to do with every design.
pub trait Visit {
    /// Does it with one.
    fn visit<D: Design>(&mut self);
}

/// Has every design visited that this build knows: the limit first, then the index, then its peers.
pub fn each(visit: &mut impl Visit) {
    visit.visit::<Bare>();
    visit.visit::<Cached>();
    visit.visit::<Load>();
    visit.visit::<Parsed>();
    #[cfg(feature = "peers")]
    {
        visit.visit::<LeftRight>();
        visit.visit::<Papaya>();
        visit.visit::<DashMap>();
        visit.visit::<ParkingLotRwLock>();
        visit.visit::<StdRwLock>();
        visit.visit::<Kubelet>();
        visit.visit::<KubeStore>();
    }
}

/// Where a found value is, as a number that the optimiser cannot foresee.
fn at<T>(found: Option<&T>) -> usize {
    found.map_or(0, |value| std::ptr::from_ref(value).addr())
}

impl Design for Bare {
    const NAME: &'static str = "bare table (the limit)";
    const CONCURRENT: bool = false;
    type Key = Box<str>;
    type Reader = Arc<Self>;
    type Writer = Self;

    fn new(pods: Vec<Arc<Pod>>) -> (Self, Arc<Self>) {
        (Self::of(pods.clone()), Arc::new(Self::of(pods)))
    }

    fn key(pod: &Pod) -> Box<str> {
        uid(pod)
    }
}

impl Read<Box<str>> for Arc<Bare> {
    fn find(&mut self, uid: &Box<str>) -> usize {
        at(self.get(uid))
    }

    fn scan(&mut self) -> usize {
        self.iter().cloned().collect::<Vec<_>>().len()
    }
}

impl Write for Bare {
    fn update(&mut self, pod: &Arc<Pod>) {
        Self::update(self, Arc::clone(pod));
    }

    fn remove(&mut self, pod: &Arc<Pod>) {
        Self::remove(self, pod_index::PodMeta::uid(pod));
    }

    fn set(&mut self, pods: Vec<Arc<Pod>>) {
        *self = Self::of(pods);
    }
}

/// The UID of a pod in an allocation of its own.
fn uid(pod: &Pod) -> Box<str> {
    pod_index::PodMeta::uid(pod).into()
}
