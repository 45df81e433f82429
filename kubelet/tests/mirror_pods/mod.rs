//! Mirror pods against an API server with a real one's rules: who may create what, preconditions of deletes,
//! and all failures in between. The static pods come from manifests; the mirrors return through the API
//! server source and the merge. Every agent here has only the rights that `deploy/kubernetes` grants.

mod client;
mod random;
mod scenarios;
mod support;
mod untouched;
