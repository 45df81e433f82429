//! Pods from a manifest directory, or from one manifest file.
//!
//! # Rules
//! * A directory is not searched recursively; its files are ordered by name. The extension does not matter,
//!   but names that start with `.` are skipped. Leftovers of editors and package managers (`web.yaml~`,
//!   `web.yaml.bak`, `web.yaml.rpmsave`) are skipped and reported: in the kubelet they became pods
//!   (k/k#136962).
//! * Only regular files are opened, also through symbolic links. A FIFO, a socket or a device is never
//!   opened.
//! * An invalid file does not affect other files. One that hangs, because it is a link to another file system that does not
//!   answer, does: the path is read by one thread, so the last pods stay until the file can be read, and the status names it.
//! * A file that *becomes* invalid keeps the last valid version of its pods until it is valid again or
//!   removed. The kubelet does this after a file event, but removes the pods at the next listing.
//! * If two files describe pods of the same name, the later file wins and the earlier is reported. Removing
//!   one of them leaves the other's pod.
//! * A path that does not exist is an empty set, and is reported.

//!
//! [`follow`] follows a path; [`list`] reads it once.

mod hints;
mod list;
mod read;
mod source;

pub use list::{Listing, list};
pub use source::{DEFAULT_PERIOD, follow, follow_with};
