//! Restores the pods of the last run and saves those of this run, if a directory is configured.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use crate::config::Settings;
use crate::config::failure::Failure;
use crate::config::values::CheckpointDirectory;
use crate::metrics::{Scrape, number};
use pod_index::{CONFIG_MIRROR_ANNOTATION, FullName, Operation, PodMeta, PodUid, Snapshot, is_static_pod};
use pod_index_kubelet::HasPod;
use pod_index_kubelet::checkpoint::{CheckpointStatus, Checkpoints, Restored, is_restored};
use pod_index_kubelet::records::Record;
use pod_index_kubelet::sources::{Source, redact_env};
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

/// The restored pods, until every source has reported.
pub(crate) struct Unclaimed {
    pods: Restored,
    /// Configured sources that were heard. Each decides its restored pods.
    heard: Vec<Source>,
    /// Configured sources not heard yet. The last one decides all restored pods that remain.
    unheard: BTreeSet<Source>,
    /// The static pods of manifests that are not published yet, by the UIDs of the restored pods that stay instead.
    held_back: HashMap<PodUid, Arc<Pod>>,
}

impl Unclaimed {
    pub(crate) fn new(pods: Restored, sources: &[Source]) -> Self {
        Self {
            pods,
            heard: Vec::new(),
            unheard: sources.iter().copied().collect(),
            held_back: HashMap::new(),
        }
    }

    /// The operations that put all of them into the index.
    pub(crate) fn operations(&self) -> impl Iterator<Item = Operation<Pod>> {
        self.pods.operations()
    }

    /// Holds back the static pods of manifests whose mirror pods were restored, until the API server or the kubelet has
    /// reported. A mirror pod names the kubelet's UID of its static pod. A manifest alone gets another UID. Returns what is to be
    /// published.
    pub(crate) fn hold_back<P: HasPod>(
        &mut self,
        operations: Vec<Operation<Pod>>,
        sound: &[Source],
        snapshot: &Snapshot<P>,
    ) -> Vec<Operation<Pod>> {
        if !self.waits_for_uids(sound) {
            let released = mem::take(&mut self.held_back).into_values().map(Operation::Upsert);
            return released.chain(operations).collect();
        }
        operations.into_iter().filter(|operation| !self.holds_back(operation, snapshot)).collect()
    }

    /// Whether nobody has said the UIDs of the node yet, and a source that is not heard yet will.
    fn waits_for_uids(&self, sound: &[Source]) -> bool {
        let is_said = sound.iter().copied().any(Source::knows_uids_of_node);
        let will_be_said = self.unheard.iter().copied().any(Source::knows_uids_of_node);
        !is_said && will_be_said
    }

    /// Whether this operation is held back. If it removes a pod that is held back, forgets that one.
    fn holds_back<P: HasPod>(&mut self, operation: &Operation<Pod>, snapshot: &Snapshot<P>) -> bool {
        match operation {
            Operation::Upsert(pod) => {
                let uid = restored_uid(pod, snapshot);
                let is_held_back = uid.is_some();
                self.held_back.extend(uid.map(|uid| (uid, Arc::clone(pod))));
                is_held_back
            }
            Operation::Remove(uid) => {
                self.held_back.retain(|_, pod| *uid != pod.uid());
                false
            }
            Operation::Set(_) => false,
        }
    }

    /// The restored pods to remove after these sources reported: those of the sources that were heard and, with the last
    /// source, those of sources that are no longer configured.
    pub(crate) fn without<P: HasPod>(&mut self, sound: &[Source], snapshot: &Snapshot<P>) -> Vec<PodUid> {
        self.heard.extend(sound.iter().filter(|source| self.unheard.remove(source)));
        if self.is_over() {
            return self.pods.unclaimed(None, snapshot);
        }
        let of = |source: &Source| self.pods.unclaimed(Some(source.as_str()), snapshot);
        self.heard.iter().flat_map(of).filter(|uid| !self.held_back.contains_key(uid)).collect()
    }

    /// Whether every source has reported.
    pub(crate) fn is_over(&self) -> bool {
        self.unheard.is_empty()
    }
}

/// The kubelet's UID of the static pod that a manifest describes, if it is known from the last run alone and differs from
/// the manifest's.
fn restored_uid<P: HasPod>(pod: &Pod, snapshot: &Snapshot<P>) -> Option<PodUid> {
    let name = FullName::new(pod.namespace(), pod.name()).ok()?;
    let uid = snapshot.mirror_pod_by_full_name(name.as_str())?.annotation(CONFIG_MIRROR_ANNOTATION)?;
    let is_known_so = uid != pod.uid() && is_static_pod(pod) && is_restored(&**snapshot.pod_by_uid(uid)?);
    is_known_so.then(|| uid.into())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;
    use pod_index::CONFIG_SOURCE_ANNOTATION;
    use pod_index_kubelet::checkpoint::RESTORED_ANNOTATION;

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

    fn pod(uid: &str, source: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        pod.metadata.name = Some(uid.to_owned());
        pod.metadata.namespace = Some("ns".to_owned());
        pod.metadata.annotations = Some([(CONFIG_SOURCE_ANNOTATION.to_owned(), source.to_owned())].into());
        Arc::new(pod)
    }

    #[test]
    fn a_source_decides_its_restored_pods_and_the_last_one_all_that_remain() {
        let pods = [("f1", "file"), ("f2", "file"), ("a1", "api"), ("a2", "api"), ("h1", "http")];
        let pods = pods.map(|(uid, source)| pod(uid, source)).into();
        let restored = Restored { pods, ..Restored::default() };
        let (mut writer, reader) = pod_index::new();
        let mut unclaimed = Unclaimed::new(restored, &[Source::File, Source::Api]);
        let _ = writer.apply(unclaimed.operations());
        // As in the writer thread.
        let mut gone = |operations: Vec<Operation<Pod>>, sound: &[Source]| {
            let _ = writer.apply(operations);
            let gone = unclaimed.without(sound, writer.current());
            let _ = writer.apply(gone.iter().cloned().map(Operation::Remove));
            (gone.iter().map(PodUid::to_string).collect::<Vec<_>>(), unclaimed.is_over())
        };
        let update = |uid: &str| Operation::Upsert(pod(uid, "file"));
        let none = Vec::<String>::new();
        let some = |uid: &str| vec![uid.to_owned()];
        assert_eq!(gone(vec![update("f1"), update("other")], &[]), (none.clone(), false));
        // A rejected pod claims nothing.
        let nameless = Operation::Upsert(Arc::new(Pod {
            metadata: ObjectMeta { uid: Some("a1".to_owned()), ..ObjectMeta::default() },
            ..Pod::default()
        }));
        assert_eq!(gone(vec![nameless], &[Source::File]), (some("f2"), false));
        assert_eq!(gone(vec![Operation::Remove("a2".into()), update("f2")], &[Source::File]), (none, false));
        assert_eq!(gone(vec![], &[Source::Api]), (vec!["a1".to_owned(), "h1".to_owned()], true));
        let left = reader.load().pods().map(|pod| pod.uid().to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(left, ["f1", "f2", "other"].map(str::to_owned).into());
    }

    /// The static pod `web`. The last run knew the kubelet's UID from its mirror pod.
    #[test]
    fn a_restored_static_pod_keeps_the_kubelets_uid_until_the_api_server_or_the_kubelet_is_heard() {
        let web = |uid: &str, source: &str, marks: &[(&str, &str)]| {
            let mut pod = Arc::unwrap_or_clone(pod(uid, source));
            pod.metadata.name = Some("web".to_owned());
            let marks = marks.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            pod.metadata.annotations.get_or_insert_default().extend(marks);
            Arc::new(pod)
        };
        let manifest = |uid: &str| Operation::Upsert(web(uid, "file", &[]));
        let remove = |uid: &str| Operation::Remove(uid.into());
        for (operations, sound, expected) in [
            (vec![], &[][..], "kubelets"),
            (vec![remove("edited")], &[], ""),
            (vec![remove("mirror")], &[Source::Api], "edited"),
            (vec![remove("edited"), manifest("kubelets")], &[Source::Kubelet], "kubelets"),
        ] {
            let restored = (RESTORED_ANNOTATION, "true");
            let mirror = web("mirror", "api", &[restored, (CONFIG_MIRROR_ANNOTATION, "kubelets")]);
            let pods = vec![web("kubelets", "file", &[restored]), mirror];
            let sources = [Source::File, Source::Api, Source::Kubelet];
            let mut unclaimed = Unclaimed::new(Restored { pods, ..Restored::default() }, &sources);
            let (mut writer, reader) = pod_index::new();
            let _ = writer.apply(unclaimed.operations());
            let mut report = |operations: Vec<Operation<Pod>>, sound: &[Source]| {
                let operations = unclaimed.hold_back(operations, sound, writer.current());
                let _ = writer.apply(operations);
                let gone = unclaimed.without(sound, writer.current());
                let _ = writer.apply(gone.into_iter().map(Operation::Remove));
                reader.load().pods().map(|pod| pod.uid().to_owned()).collect::<Vec<_>>().join(" ")
            };
            assert_eq!(report(vec![manifest("read")], &[Source::File]), "kubelets");
            assert_eq!(report(vec![remove("read"), manifest("edited")], &[]), "kubelets");
            assert_eq!(report(operations, sound), expected, "after {sound:?}");
        }
    }
}
