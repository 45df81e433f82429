//! Restores the pods of the last run and saves those of this run, if a directory is configured.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::config::Settings;
use crate::config::failure::Failure;
use crate::config::values::CheckpointDirectory;
use crate::metrics::{Scrape, number};
use pod_index::Snapshot;
use pod_index_kubelet::checkpoint::{CheckpointStatus, Checkpoints, Restored, is_restored};
use pod_index_kubelet::records::Record;
use pod_index_kubelet::sources::redact_env;
use rustix::process::{Uid, getegid, geteuid};

/// The directory, opened and read. `None` if none is configured. Skips bad files.
pub(crate) fn open(settings: &Settings) -> Result<Option<(Checkpoints, Restored)>, Failure> {
    let Some(CheckpointDirectory { path, which }) = &settings.checkpoints else { return Ok(None) };
    let opened = Checkpoints::open(path, *which);
    let (checkpoints, mut restored) =
        opened.map_err(|error| Failure::unable(settings.written.name("checkpoint-dir"), error))?;
    if let Some(who) = who_else_may_write(path, Some(geteuid())) {
        tracing::warn!(directory = %path.display(), "{who} may write checkpoints there, and the agent believes them at its next start");
    }
    for error in &restored.errors {
        tracing::error!(path = error.path, kind = error.kind.as_str(), "{error}");
    }
    if restored.more_errors > 0 {
        tracing::error!(files = restored.more_errors, "more checkpoints cannot be used");
    }
    if restored.not_read > 0 {
        let files = restored.not_read;
        tracing::warn!(files, directory = %path.display(), "more checkpoints than any node has pods: the oldest are not restored");
    }
    if settings.effective.content.redact_env {
        // The last run may have had other settings.
        restored.pods.iter_mut().for_each(|pod| redact_env(Arc::make_mut(pod)));
    }
    let pods = restored.pods.len();
    tracing::info!(pods, directory = %path.display(), "restored pods from checkpoints");
    Ok(Some((checkpoints, restored)))
}

/// Who may put files into the checkpoint directory besides root and the agent's own user and group. A file there is a pod at the next
/// start, until the sources say otherwise. `None` also if there is no such directory.
///
/// `agent`: the agent's user. If it is not known, it may be the directory's owner.
///
/// The sticky bit does not help: it forbids to remove another's file, and not to add one. The kubelet does not look either: it makes
/// its directory for itself (`checkpointmanager.NewCheckpointManager`), so this is a warning, and no reason not to start.
pub(crate) fn who_else_may_write(directory: &Path, agent: Option<Uid>) -> Option<String> {
    let directory = fs::metadata(directory).ok().filter(fs::Metadata::is_dir)?;
    let permissions = Permissions { user: directory.uid(), group: directory.gid(), mode: directory.mode() };
    permissions.others_who_may_write(agent.map(Uid::as_raw), getegid().as_raw())
}

/// Who owns a directory, and what its owner, its group and all others may do there.
struct Permissions {
    user: u32,
    group: u32,
    mode: u32,
}

impl Permissions {
    fn others_who_may_write(&self, own_user: Option<u32>, own_group: u32) -> Option<String> {
        let Self { user, group, mode } = *self;
        if mode & 0o002 != 0 {
            return Some("every user of the machine".to_owned());
        }
        if mode & 0o020 != 0 && group != own_group && group != 0 {
            return Some(format!("the group {group}"));
        }
        (own_user.is_some_and(|own_user| user != own_user) && user != 0)
            .then(|| format!("the user {user}, its owner,"))
    }
}

/// The state of the checkpoints, and the number of pods in the index that no source has confirmed.
pub(crate) fn show(status: &CheckpointStatus, snapshot: &Snapshot<Record>, to: &mut Scrape<'_>) {
    let restored = snapshot.pods().chain(snapshot.mirror_pods()).filter(|pod| is_restored(&***pod)).count();
    let help = "Pods known only from checkpoints, because their sources have not reported yet.";
    to.gauge("restored_pods", help, number(restored));
    to.gauge("checkpoint_files", "Checkpoints on disk.", number(status.files));
    let help = "Pods whose checkpoints are missing or outdated.";
    to.gauge("checkpoint_problems", help, number(status.wrong));
    let help = "Unusable files, or directories in their place, that were set aside.";
    to.gauge("checkpoint_files_set_aside", help, number(status.set_aside));
    let help = "Files that were not read at the start, or could not be, and still exist.";
    to.gauge("checkpoint_files_unread", help, number(status.unread));
    to.counter("checkpoint_writes", "Checkpoints written.", status.written);
    to.counter("checkpoint_failures", "Failed attempts to write or remove a checkpoint.", status.failures);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_may_add_a_checkpoint_besides_root_and_the_agent_is_named() {
        const OWN: u32 = 7;
        for (user, group, mode, expected) in [
            (OWN, OWN, 0o700, None),
            (OWN, OWN, 0o775, None),
            (0, 0, 0o775, None),
            (OWN, OWN, 0o777, Some("every user of the machine")),
            (0, 0, 0o1777, Some("every user of the machine")),
            (OWN, 8, 0o770, Some("the group 8")),
            (OWN, 8, 0o750, None),
            (9, OWN, 0o755, Some("the user 9, its owner,")),
        ] {
            let found = Permissions { user, group, mode }.others_who_may_write(Some(OWN), OWN);
            assert_eq!(found.as_deref(), expected, "{user} {group} {mode:o}");
        }
    }

    #[test]
    fn the_owner_of_a_directory_is_no_problem_if_he_may_be_the_agent() {
        let of_the_service = Permissions { user: 9, group: 9, mode: 0o700 };
        assert_eq!(of_the_service.others_who_may_write(None, 0), None);
        let open = Permissions { user: 9, group: 9, mode: 0o777 };
        let found = open.others_who_may_write(None, 0);
        assert_eq!(found.as_deref(), Some("every user of the machine"));
    }
}
