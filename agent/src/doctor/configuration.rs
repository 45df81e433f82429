//! The settings, and the files and servers that they name.

use pod_index_kubelet::sources::{Nudge, ProblemKind, SourceStatus, file};

use super::report::Finding;
use crate::config::{Given, Settings};
use crate::run::check;

/// Without settings, but with an agent that answers.
pub(super) const NOT_GIVEN: &str = "only the running agent is checked; to check its settings too, give doctor the agent's flags, or its file with --config";
pub(super) const SETTINGS: &str = "settings";

/// The settings, unless they are invalid.
pub(super) fn settings(given: &Given) -> (Option<Settings>, Finding) {
    let fix =
        "give doctor the agent's own flags, or its file with --config; the agent does not start with these";
    match given.resolve().and_then(|settings| check::certificate(&settings).map(|_| settings)) {
        Ok(settings) => {
            let finding = Finding::ok(SETTINGS, settings.words());
            (Some(settings), finding)
        }
        Err(failure) => (None, Finding::of(SETTINGS, Err(failure), fix)),
    }
}

/// Checks the manifests, the URL, the kubelet and the checkpoint directory, if configured.
pub(super) async fn check(settings: &Settings, findings: &mut Vec<Finding>) {
    manifests(settings, findings).await;
    let of_url = "see whether the server runs, and what it serves";
    let of_kubelet = "see whether the kubelet runs, and whether the URL is the kubelet's; for 403, grant the token's user to \
                      get nodes/pods (before Kubernetes 1.33, nodes/proxy); for 401, name a valid token with \
                      --kubelet-token-file; for a certificate, name its authority with --kubelet-ca";
    for (check, done, fix) in [
        ("URL", check::url(settings).await, of_url),
        ("kubelet's pods", check::kubelet(settings).await, of_kubelet),
    ] {
        match done {
            Ok(status) => status.iter().for_each(|status| read(check, status, fix, findings)),
            Err(failure) => findings.push(Finding::of(check, Err(failure), fix)),
        }
    }
    if let Some((path, _)) = &settings.checkpoints {
        let done = check::keeps(path).map(|()| format!("{} can be written", path.display()));
        let fix = "let the agent's user write there; the unit's service can write only to /var/lib/pod-index";
        findings.push(Finding::of("checkpoints", done, fix));
    }
}

/// Reads the manifests as the agent does.
async fn manifests(settings: &Settings, findings: &mut Vec<Finding>) {
    const CHECK: &str = "manifests";
    let Some(path) = &settings.given.static_pod_path else {
        findings.push(Finding::skipped(CHECK, "no path of manifests is configured"));
        return;
    };
    if let Err(failure) = check::manifests(path) {
        let fix = "create the directory, correct the path, or let the agent's user read it";
        findings.push(Finding::of(CHECK, Err(failure), fix));
        return;
    }
    let (node, period) = (settings.node.clone(), settings.period_of("file"));
    let source = file::follow_with(path, node, period, |_| {}, Nudge::default());
    let status = check::first_look(source).await;
    read(CHECK, &status, "correct or remove the manifest", findings);
    let unhinted = status.problems.iter().find(|problem| problem.kind == ProblemKind::Unhinted);
    let fix = "raise the limits, for example sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=512; \
               until then changes are seen at the next listing (--file-check-frequency)";
    findings.extend(unhinted.map(|problem| Finding::warning("file events", &problem.message, fix)));
}

/// What a source has read, and what may hide a pod.
fn read(check: &'static str, status: &SourceStatus, fix: &str, findings: &mut Vec<Finding>) {
    let grave: Vec<_> = status.problems.iter().filter(|problem| problem.kind.is_grave()).collect();
    if grave.is_empty() {
        findings.push(Finding::ok(check, format!("{}: {} pods", status.origin, status.pods)));
    }
    let wrong = if status.seen { Finding::warning } else { Finding::failure };
    findings.extend(grave.iter().map(|problem| wrong(check, problem.to_string(), fix.to_owned())));
}
