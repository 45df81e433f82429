//! The settings, and the files and servers that they name.

use futures_util::StreamExt;
use pod_index_kubelet::sources::ProblemKind;
use rustix::process::geteuid;

use super::report::Finding;
use crate::config::rules::SourceKind;
use crate::config::values::CheckpointDirectory;
use crate::config::{Invocation, Settings};
use crate::pipeline::checkpoints;
use crate::pipeline::sources::Opened;
use crate::run::check;

/// Without settings, but with an agent that answers.
pub(super) const NOT_GIVEN: &str = "only the running agent is checked; to check its settings too, give doctor the agent's flags, or its file with --config";
pub(super) const SETTINGS: &str = "settings";

/// The settings, unless they are invalid, and their sources except the API server.
pub(super) fn settings(invocation: &Invocation) -> (Option<Settings>, Vec<Opened>, Finding) {
    let fix =
        "give doctor the agent's own flags, or its file with --config; the agent does not start with these";
    match invocation.resolve().and_then(|settings| Ok((check::local(&settings)?, settings))) {
        Ok((sources, settings)) => {
            let finding = Finding::ok(SETTINGS, settings.words());
            (Some(settings), sources, finding)
        }
        Err(failure) => (None, Vec::new(), Finding::of(SETTINGS, Err(failure), fix)),
    }
}

/// Checks these sources and the checkpoint directory, if one is configured.
pub(super) async fn check(settings: &Settings, sources: Vec<Opened>, findings: &mut Vec<Finding>) {
    for source in sources {
        read(settings, source, findings).await;
    }
    if let Some(CheckpointDirectory { path, .. }) = &settings.checkpoints {
        let done = check::keeps(settings, path).map(|()| format!("{} can be written", path.display()));
        let fix = "let the agent's user write there; the unit's service can write only to /var/lib/pod-index";
        findings.push(Finding::of("checkpoints", done, fix));
        // Root examines a directory that belongs to the agent, whose user it does not know.
        let agent = Some(geteuid()).filter(|user| !user.is_root());
        findings.extend(checkpoints::who_else_may_write(path, agent).map(|who| {
            let what = format!(
                "{who} may write into {}: whoever does makes up pods at the next start",
                path.display()
            );
            let fix = format!("chmod 700 {}, and chown it to the agent's user", path.display());
            Finding::warning("checkpoints", what, fix)
        }));
    }
}

/// Polls a source until its first read has ended: what it has read, and what may hide a pod.
async fn read(settings: &Settings, source: Opened, findings: &mut Vec<Finding>) {
    let Opened { kind, mut updates, .. } = source;
    let mut status = updates.status();
    tokio::select! {
        _ = updates.next() => {}
        _ = status.wait_for(|status| status.checks > 0) => {}
    }
    let status = status.borrow().clone();
    let (check, fix) = match kind {
        SourceKind::Manifests => ("manifests", "correct or remove the manifest"),
        SourceKind::ManifestUrl => ("URL", "see whether the server runs, and what it serves"),
        SourceKind::KubeletSocket => (
            "kubelet's pods",
            "see whether the kubelet runs and serves its Pods API (Kubernetes 1.37; before, its feature gate PodsAPI); in a \
             container, mount the socket's directory, not the socket, and run as root",
        ),
        // The API server is no source here: see `settings`. What it answers is checked by `rights`.
        SourceKind::KubeletPort | SourceKind::ApiServer => (
            "kubelet's pods",
            "see whether the kubelet runs, and whether the URL is the kubelet's; for 403, grant the token's user to get \
             nodes/pods (before Kubernetes 1.33, nodes/proxy); for 401, name a valid token with --kubelet-token-file; for \
             a certificate, name its authority with --kubelet-ca",
        ),
    };
    if kind == SourceKind::Manifests
        && let Some(path) = &settings.effective.manifests.path
        && let Err(failure) = check::manifests(settings, path)
    {
        let fix = "create the directory, correct the path, or let the agent's user read it";
        findings.push(Finding::of(check, Err(failure), fix));
        return;
    }
    let grave: Vec<_> = status.problems.iter().filter(|problem| problem.kind.is_grave()).collect();
    if grave.is_empty() {
        findings.push(Finding::ok(check, format!("{}: {} pods", status.origin, status.pods)));
    }
    let wrong = if status.seen { Finding::warning } else { Finding::failure };
    findings.extend(grave.iter().map(|problem| wrong(check, problem.to_string(), fix.to_owned())));
    let unhinted = status.problems.iter().find(|problem| problem.kind == ProblemKind::Unhinted);
    let fix = "raise the limits, for example sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=512; \
               until then changes are seen at the next listing (--file-check-frequency)";
    findings.extend(unhinted.map(|problem| Finding::warning("file events", &problem.message, fix)));
}
