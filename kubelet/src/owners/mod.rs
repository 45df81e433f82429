//! The owners of pods, such as their `ReplicaSets`, from the API server.
//!
//! A pod names its `ReplicaSet`, but its workload is the Deployment that owns the `ReplicaSet`. Only the `ReplicaSet`
//! itself names that. A cluster can have 200,000 of them, so a [`Follower`] neither lists nor watches: it requests the owners
//! of the pods in an index one by one, keeps them while a pod needs them, and requests them again now and then.
//!
//! ```text
//! index ─> which owners do pods need? ─> which of them are due? ─> request, at a limited rate ─> Owners, updates
//! ```
//!
//! # When an owner is requested
//! Two thousand nodes have two thousand followers, so each request counts.
//!
//! | owner | first | again |
//! |---|---|---|
//! | one whose own owner names the workload: a `ReplicaSet`, a Job | within three minutes of the start, then as soon as a pod names it | every 40 to 60 minutes |
//! | others: the pod or the `ReplicaSet` names them | once somebody has asked for owners of their kind, or at once with [`Needed::Every`] | every 40 to 60 minutes |
//! | of a kind that somebody asks for now | at once | ten minutes after it was read |
//!
//! The API server answers from its cache. Only what that lacks is requested once more, from etcd.
//!
//! # Examples
//! Records that know their Deployments:
//! ```no_run
//! use pod_index_kubelet::owners::{Follower, Options, Owners};
//! use pod_index_kubelet::records::{Change, Record};
//!
//! # fn run(client: kube::Client, reader: pod_index::Reader<Record>) {
//! let (changes, mut received) = tokio::sync::mpsc::unbounded_channel::<Change>();
//! let owners = Owners::default();
//! let follower = Follower::new(client, reader, owners.clone(), Options::default(), move |update| {
//!     // To the thread that has the join: `join.write(&mut writer, [change])`.
//!     let _ = update.change().map(|change| changes.send(change));
//! });
//! tokio::spawn(follower.run());
//! # drop(received.try_recv());
//! # }
//! ```

mod follower;
mod id;
mod interest;
mod kind;
mod known;
mod rate;
mod refresh;
mod request;
mod update;
mod wanted;

#[cfg(test)]
mod tests;

pub use follower::{Follower, Options};
pub use id::OwnerId;
pub use kind::OwnerKind;
pub use known::Owners;
pub use refresh::Needed;
pub use update::{OwnerUpdate, OwnersState};

/// The metadata of an owner.
pub type Owner = kube::core::PartialObjectMeta;
