//! The compared designs, behind one trait.
//!
//! All except two hold one map, from UID to pod: the minimum for a reader. The index and [`Kubelet`] keep all
//! five maps of the kubelet's pod manager, which makes their writes more expensive.

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
pub use self::kube::{KubeStore, Object};
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
    /// Its name in the reports.
    const NAME: &'static str;
    /// Whether readers may run during writes.
    const CONCURRENT: bool = true;
    /// The form of UIDs that its readers take, allocated outside the map.
    type Key: for<'p> From<&'p Pod> + Clone + Send + Sync + 'static;
    /// The state of each reading thread.
    type Reader: Read<Self::Key> + Clone + Send + 'static;
    /// The state of the writing thread.
    type Writer: Write + Send + 'static;

    /// Writer and reader of a map of these pods.
    fn new(pods: Vec<Arc<Pod>>) -> (Self::Writer, Self::Reader);
}

/// Lookups on one thread.
pub trait Read<K> {
    /// Looks a pod up and returns its address, or 0. Borrows the pod if the design allows it.
    fn find(&mut self, key: &K) -> usize;
    /// Reads all pods and all translations of one moment, as an agent would. Returns their number.
    fn scan(&mut self) -> usize;
}

/// Writes.
pub trait Write {
    /// Stores a pod.
    fn update(&mut self, pod: &Arc<Pod>);
    /// Removes a pod.
    fn remove(&mut self, pod: &Arc<Pod>);
    /// Replaces everything.
    fn set(&mut self, pods: Vec<Arc<Pod>>);
    /// Stores pods, under one lock or in one publication if the design supports that.
    fn batch(&mut self, pods: &[Arc<Pod>]) {
        pods.iter().for_each(|pod| self.update(pod));
    }
}

/// An operation to run with every design.
pub trait Visit {
    /// Runs with one design.
    fn visit<D: Design>(&mut self);
}

/// Runs with every design of this build: the bare table first, then the index, then the others.
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

/// The address of a found value, as a number that the optimiser cannot predict.
fn at<T>(found: Option<&T>) -> usize {
    found.map_or(0, |value| std::ptr::from_ref(value).addr())
}

impl Design for Bare {
    const NAME: &'static str = "bare table";
    const CONCURRENT: bool = false;
    type Key = Box<str>;
    type Reader = Arc<Self>;
    type Writer = Self;

    fn new(pods: Vec<Arc<Pod>>) -> (Self, Arc<Self>) {
        (Self::of(pods.clone()), Arc::new(Self::of(pods)))
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
        Self::remove(self, pod_index::PodMeta::uid(&**pod));
    }

    fn set(&mut self, pods: Vec<Arc<Pod>>) {
        *self = Self::of(pods);
    }
}

impl From<&Pod> for Box<str> {
    fn from(pod: &Pod) -> Self {
        uid(pod)
    }
}

/// A pod's UID in its own allocation.
fn uid(pod: &Pod) -> Box<str> {
    pod_index::PodMeta::uid(pod).into()
}
