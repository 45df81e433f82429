//! Mirror pods against an API server with the rules of a real one: who may create what, what a delete may touch, and every
//! failure in between. The static pods come from manifests, the mirrors back through the API-server source and the merge.
//! Every agent here has a clock that jumps about, and no more rights than `deploy/kubernetes` grants.
#![cfg(feature = "api-server")]

use pod_index_test_support::api_server;
mod client;
mod kubelet;
mod random;
mod scenarios;
#[path = "../../../tests/support/seeded.rs"]
mod seeded;
mod support;
mod untouched;
