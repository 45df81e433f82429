//! The interface of otel-arrow's planned resource enricher, as its design has it.
//!
//! The design (`rust/otap-dataflow/docs/resource-enricher-processor.md`) asks for one snapshot a batch, and for flat
//! records by attributes or by the peer's address. Its methods for configuration are left out.

use std::collections::HashMap;
use std::net::IpAddr;

/// Pairs of an attribute's name and its value, all of which have to hold.
pub type LookupKey<'a> = &'a [(&'a str, &'a str)];
/// The attributes of a pod, by name.
pub type EnrichmentRecord = HashMap<String, EnrichmentValue>;

#[derive(Debug)]
#[expect(dead_code, reason = "the processor reads them")]
pub enum EnrichmentValue {
    Scalar(String),
    Array(Vec<String>),
}

/// Finds records by attributes.
pub trait MetadataLookup {
    /// Everything of one moment. A trait of theirs, too; here the provider names its own.
    type Snapshot;
    fn snapshot(&self) -> Self::Snapshot;
    fn lookup<'a>(&self, snapshot: &'a Self::Snapshot, key: LookupKey<'_>) -> Option<&'a EnrichmentRecord>;
    fn as_connection_lookup(&self) -> Option<&dyn ConnectionLookup<Self::Snapshot>> {
        None
    }
}

/// Finds records by the address of a connection's peer.
pub trait ConnectionLookup<S> {
    fn lookup_by_connection<'a>(&self, snapshot: &'a S, peer: IpAddr) -> Option<&'a EnrichmentRecord>;
}
