//! `--check`: whether the agent would run with these settings, and whether all that they name is there.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process;

use super::exit::Failure;
use super::settings::{FileSettings, Settings};
use super::{format, source_tasks};

/// Prints the settings and the verdict on them.
///
/// What would keep the agent from running is told as it is when it runs. It would run without its manifests, and find them
/// as soon as they are there, and with checkpoints that it cannot write; but whoever asks wants to hear of it.
pub(super) fn check(settings: &Settings) -> Result<(), Failure> {
    format::print(&settings.summary())?;
    if settings.api.is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::unable("cannot start the runtime", error))?;
        runtime.block_on(source_tasks::client(settings))?;
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
    if let Some((path, _)) = &settings.checkpoints {
        keeps(path)?;
    }
    format::print("\nThe configuration is good.\n")
}

fn readable(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() { fs::read_dir(path).map(drop) } else { File::open(path).map(drop) }
}

/// Whether checkpoints can be kept in this directory, which need not be there yet. It is left as it was, and an agent that
/// uses it is not disturbed.
fn keeps(path: &Path) -> Result<(), Failure> {
    let name = format!(".pod-index-check-{}", process::id());
    if path.is_dir() {
        fs::read_dir(path).map_err(|error| unusable(path, "cannot be used", error))?;
        let trial = path.join(name);
        return File::create_new(&trial).and_then(|_| fs::remove_file(&trial)).map_err(|error| {
            let path = path.display();
            Failure::No(Some(format!(
                "checkpointDir: {path}: cannot be written to: {error}; the agent would run, without checkpoints"
            )))
        });
    }
    // Relative paths end in nothing, which stands for where the agent is started.
    let there = path.ancestors().find(|path| path.exists() || path.as_os_str().is_empty());
    let trial = there.unwrap_or(path).join(name);
    let made = fs::create_dir(&trial).and_then(|()| fs::remove_dir(&trial));
    made.map_err(|error| unusable(path, "cannot be made", error))
}

fn unusable(path: &Path, what: &str, error: io::Error) -> Failure {
    Failure::unable(format!("checkpointDir: {}: {what}", path.display()), error)
}
