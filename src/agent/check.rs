//! `--check`: whether the agent would run with these settings, and whether all that they name is there.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::exit::Failure;
use super::settings::{FileSettings, Settings};
use super::{feeds, format};

/// Prints the settings and the verdict on them.
///
/// What would keep the agent from running is a wrong configuration, as it is when it runs. It would run without its
/// manifests, and find them as soon as they are there; but whoever asks wants to hear that they are not.
pub(super) fn check(settings: &Settings) -> Result<(), Failure> {
    format::print(&settings.summary())?;
    if settings.api.is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::unable("cannot start the runtime", error))?;
        runtime.block_on(feeds::client(settings))?;
    }
    if let Some(FileSettings { path, .. }) = &settings.file {
        readable(path).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound => "does not exist".to_owned(),
                _ => format!("cannot be read: {error}"),
            };
            let path = path.display();
            Failure::No(Some(format!(
                "staticPodPath: {path}: {why}; the agent would run, without pods of it"
            )))
        })?;
    }
    format::print("\nThe configuration is good.\n")
}

fn readable(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() { fs::read_dir(path).map(drop) } else { File::open(path).map(drop) }
}
