//! Pods from a manifest directory, or from one manifest file.
//!
//! This module knows directories, files and their oddities. It must not know what else feeds the index.
//!
//! # Rules
//! * A directory is not searched recursively; its files count in the order of their names. No extension is asked
//!   for, but names that start with `.` are passed over, and so, with a word about it, is what editors and package
//!   managers leave behind (`web.yaml~`, `web.yaml.bak`, `web.yaml.rpmsave`): those became pods in the kubelet
//!   (k/k#136962).
//! * Only regular files are opened, through symbolic links too. A FIFO, a socket or a device is never opened.
//! * A bad file costs nothing but itself: every other file is served.
//! * A file that *turns* bad keeps the last good version of its pods until it is good again or gone. The kubelet
//!   does so on a file event and undoes it on the next listing.
//! * If two files describe a pod of one name, the later in order counts and the earlier is reported. Removing either
//!   leaves the other.
//! * A path that does not exist is an empty set, and a problem to report.

//!
//! [`FileSource`] follows a path; [`list`] looks at it once.

mod hints;
mod list;
mod read;
mod source;

pub use list::{Listing, list};
pub use source::{DEFAULT_PERIOD, FileSource};
