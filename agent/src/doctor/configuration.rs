//! The settings, and the files and servers that they name.

use pod_index_kubelet::sources::file::FileSource;
use pod_index_kubelet::sources::{ProblemKind, SourceStatus};

use super::report::{Finding, span};
use crate::config::{Given, Settings};
use crate::run::check;

/// Without settings, but with an agent that answers.
pub(super) const NOT_GIVEN: &str = "only the running agent is checked; to check its settings too, give doctor the agent's flags, or its file with --config";
pub(super) const SETTINGS: &str = "settings";

/// A certificate that expires sooner is reported.
const SOON: f64 = 7.0 * 86_400.0;

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

/// Checks the manifests, the URL, the checkpoint directory and the certificate, if configured. Returns whether changes of
/// the manifests would be noticed at once.
pub(super) async fn check(settings: &Settings, findings: &mut Vec<Finding>) -> Finding {
    let events = manifests(settings, findings).await;
    match check::url(settings).await {
        Ok(None) => {}
        Ok(Some(status)) => read("URL", &status, "see whether the server runs, and what it serves", findings),
        Err(failure) => findings.push(Finding::of("URL", Err(failure), "correct the URL")),
    }
    if let Some((path, _)) = &settings.checkpoints {
        let done = check::keeps(path).map(|()| format!("{} can be written", path.display()));
        let fix = "let the agent's user write there; the unit's service can write only to /var/lib/pod-index";
        findings.push(Finding::of("checkpoints", done, fix));
    }
    if let Ok(Some(tls)) = check::certificate(settings)
        && let Some(end) = tls.not_after()
    {
        #[allow(clippy::cast_precision_loss, reason = "exact for 285 million years")]
        let left = end as f64 - super::clock::now();
        findings.push(certificate(left));
    }
    events
}

/// Reads the manifests as the agent does. Returns whether it would have file events.
async fn manifests(settings: &Settings, findings: &mut Vec<Finding>) -> Finding {
    const CHECK: &str = "manifests";
    const EVENTS: &str = "file events";
    let Some(path) = &settings.given.static_pod_path else {
        findings.push(Finding::skipped(CHECK, "no path of manifests is configured"));
        return Finding::skipped(EVENTS, "no manifests are read from files");
    };
    if let Err(failure) = check::manifests(path) {
        let fix = "create the directory, correct the path, or let the agent's user read it";
        findings.push(Finding::of(CHECK, Err(failure), fix));
        return Finding::skipped(EVENTS, "the manifests cannot be read");
    }
    let source = FileSource::with_period(path, settings.node.clone(), settings.period_of("file"));
    let status = check::first_look(source, FileSource::status).await;
    read(CHECK, &status, "correct or remove the manifest", findings);
    let unhinted = status.problems.iter().find(|problem| problem.kind() == ProblemKind::Unhinted);
    let fix = "raise the limits, for example sysctl fs.inotify.max_user_watches=524288 fs.inotify.max_user_instances=512; \
               until then changes are seen at the next listing (--file-check-frequency)";
    match unhinted {
        Some(problem) => Finding::warning(EVENTS, problem.message(), fix),
        None => Finding::ok(EVENTS, "manifests can be watched"),
    }
}

/// What a source has read: a warning for each problem that may hide a pod.
fn read(check: &'static str, status: &SourceStatus, fix: &str, findings: &mut Vec<Finding>) {
    let grave: Vec<_> = status.problems.iter().filter(|problem| problem.kind().is_grave()).collect();
    if grave.is_empty() {
        findings.push(Finding::ok(check, format!("{}: {} pods", status.origin, status.pods)));
    }
    findings.extend(grave.iter().map(|problem| Finding::warning(check, problem.to_string(), fix)));
}

/// Judges the seconds that a certificate has left.
fn certificate(left: f64) -> Finding {
    let end = if left <= 0.0 {
        format!("expired {} ago", span(-left))
    } else {
        format!("expires in {}", span(left))
    };
    let fix = "renew the files of tlsCertFile and tlsPrivateKeyFile; the agent reads them within ten seconds";
    Finding::by_size("certificate", -left, (-SOON, 0.0), format!("the agent's certificate {end}"), fix)
}

#[cfg(test)]
mod tests {
    use super::super::report::Outcome;
    use super::*;

    #[test]
    fn a_certificate_is_reported_a_week_before_its_end() {
        for (days, result, words) in [
            (-3.0, Outcome::Failure, "expired 3 d ago"),
            (0.5, Outcome::Warning, "expires in 12 h"),
            (6.9, Outcome::Warning, "expires in 6 d"),
            (7.1, Outcome::Ok, "expires in 7 d"),
        ] {
            let finding = certificate(days * 86_400.0);
            assert_eq!(finding.result, result, "{days}");
            assert!(finding.message.ends_with(words), "{days}: {}", finding.message);
        }
    }
}
