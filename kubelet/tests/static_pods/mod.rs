//! One pod from several sources: static pods derived from mirror pods, which source is used for what, and
//! independence of the sources' order.

mod derived;
mod incomplete;
mod random;
mod refused;
mod support;
