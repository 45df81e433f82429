//! Mirror pods against an API server with a real one's rules: who may create what, preconditions of deletes,
//! and all failures in between. The static pods come from manifests; the mirrors return through the API
//! server source and the merge. Every agent here has only the rights that `deploy/kubernetes` grants.
#![cfg(feature = "api-server")]

use pod_index_test_support::api_server;
mod client;
mod random;
mod scenarios;
#[path = "../../../tests/support/seeded.rs"]
mod seeded;
mod support;
mod untouched;
