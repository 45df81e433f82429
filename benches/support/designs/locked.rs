//! One hash map behind one reader-writer lock: the design of most agents.

use std::sync::Arc;

use ahash::AHashMap;
use pod_index::PodMeta;

use super::{Design, Read, Write, at, uid};
use crate::workload::Pod;

type Map = AHashMap<Box<str>, Arc<Pod>>;

fn map(pods: Vec<Arc<Pod>>) -> Map {
    pods.into_iter().map(|pod| (uid(&pod), pod)).collect()
}

/// Declares the design for one type of lock.
macro_rules! locked {
    ($(#[$doc:meta])* $name:ident, $title:literal, $lock:ty, $read:ident, $write:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(Arc<$lock>);

        impl Design for $name {
            const NAME: &'static str = $title;
            type Key = Box<str>;
            type Reader = Self;
            type Writer = Self;

            fn new(pods: Vec<Arc<Pod>>) -> (Self, Self) {
                let new = Self(Arc::new(<$lock>::new(map(pods))));
                (new.clone(), new)
            }
        }

        impl Read<Box<str>> for $name {
            fn find(&mut self, uid: &Box<str>) -> usize {
                at($read(&self.0).get(uid))
            }

            fn scan(&mut self) -> usize {
                $read(&self.0).values().cloned().collect::<Vec<_>>().len()
            }
        }

        impl Write for $name {
            fn update(&mut self, pod: &Arc<Pod>) {
                insert(&mut $write(&self.0), pod);
            }

            fn remove(&mut self, pod: &Arc<Pod>) {
                $write(&self.0).remove(pod.uid());
            }

            fn set(&mut self, pods: Vec<Arc<Pod>>) {
                // The kubelet fills its maps under its lock.
                *$write(&self.0) = map(pods);
            }

            fn batch(&mut self, pods: &[Arc<Pod>]) {
                let mut map = $write(&self.0);
                pods.iter().for_each(|pod| insert(&mut map, pod));
            }
        }
    };
}

/// Allocates a key only for a new pod.
fn insert(map: &mut Map, pod: &Arc<Pod>) {
    match map.get_mut(pod.uid()) {
        Some(known) => known.clone_from(pod),
        None => drop(map.insert(uid(pod), Arc::clone(pod))),
    }
}

fn std_read(lock: &std::sync::RwLock<Map>) -> std::sync::RwLockReadGuard<'_, Map> {
    lock.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn std_write(lock: &std::sync::RwLock<Map>) -> std::sync::RwLockWriteGuard<'_, Map> {
    lock.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn parking_lot_read(lock: &parking_lot::RwLock<Map>) -> parking_lot::RwLockReadGuard<'_, Map> {
    lock.read()
}

fn parking_lot_write(lock: &parking_lot::RwLock<Map>) -> parking_lot::RwLockWriteGuard<'_, Map> {
    lock.write()
}

locked! {
    /// Behind the standard library's lock.
    StdRwLock, "std RwLock", std::sync::RwLock<Map>, std_read, std_write
}

locked! {
    /// Behind `parking_lot`'s lock.
    ParkingLotRwLock, "parking_lot RwLock", parking_lot::RwLock<Map>, parking_lot_read, parking_lot_write
}
