//! The settings, and the files and servers that they name.

use kube::Client;
use pod_index_kubelet::sources::file::FileSource;
use pod_index_kubelet::sources::{ProblemKind, SourceStatus};

use super::report::{Finding, span};
use crate::config::failure::Failure;
use crate::config::{FileSettings, Given, Settings};
use crate::pipeline::readiness::is_grave;
use crate::run::check;

const SETTINGS: &str = "settings";

/// A certificate that expires sooner is reported.
const SOON: f64 = 7.0 * 86_400.0;

/// The settings, unless they are invalid, and the findings.
pub(super) fn settings(given: &Given) -> (Option<Settings>, Vec<Finding>) {
    let valid = |settings: Settings| check::certificate(&settings).map(|_| settings);
    match given.resolve().and_then(valid) {
        Err(failure) => {
            let message = failure.message().unwrap_or_default();
            let fix = "give doctor the agent's own flags, or its file with --config; the agent does not start with these";
            (None, vec![Finding::failure(SETTINGS, message, fix)])
        }
        Ok(settings) => {
            let finding = Finding::ok(SETTINGS, settings.words());
            (Some(settings), vec![finding])
        }
    }
}

/// Whether the agent would have file events.
#[derive(Debug, PartialEq)]
pub(super) enum FileEvents {
    /// It reads no files.
    NotNeeded,
    /// The manifests cannot be read.
    Unread,
    Yes,
    /// The reason why not.
    No(String),
}

/// Reads the manifests as the agent does, and checks whether changes would be noticed at once.
pub(super) async fn manifests(settings: &Settings) -> (FileEvents, Vec<Finding>) {
    const CHECK: &str = "manifests";
    let Some(FileSettings { path, period }) = &settings.file else {
        return (FileEvents::NotNeeded, vec![Finding::skipped(CHECK, "no path of manifests is configured")]);
    };
    if let Err(failure) = check::manifests(path) {
        let message = failure.message().unwrap_or_default();
        let fix = "create the directory, correct the path, or let the agent's user read it";
        return (FileEvents::Unread, vec![Finding::failure(CHECK, message, fix)]);
    }
    let source = FileSource::with_period(path, settings.node.clone(), *period);
    let status = source.status();
    let status = check::first_look(source, status).await;
    let unhinted = status.problems.iter().find(|problem| problem.kind() == ProblemKind::Unhinted);
    let events = unhinted.map_or(FileEvents::Yes, |problem| FileEvents::No(problem.message().to_owned()));
    let place = path.display().to_string();
    let mut findings = problems(CHECK, &status, "correct or remove the manifest");
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{place}: {} pods", status.pods)));
    }
    (events, findings)
}

/// A warning for each problem that may hide a pod.
fn problems(check: &'static str, status: &SourceStatus, fix: &str) -> Vec<Finding> {
    let grave = status.problems.iter().filter(|problem| is_grave(problem));
    grave.map(|problem| Finding::warning(check, problem.to_string(), fix)).collect()
}

/// Checks the URL, the checkpoint directory and the certificate, if configured.
pub(super) async fn others(settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    match check::url(settings).await {
        Ok(None) => {}
        Ok(Some(status)) if status.problems.is_empty() => {
            findings.push(Finding::ok("URL", format!("{}: {} pods", status.origin, status.pods)));
        }
        Ok(Some(status)) => {
            let fix = "see whether the server runs, and what it serves";
            findings.extend(problems("URL", &status, fix));
        }
        Err(failure) => findings.push(of(&failure, "URL", "correct the URL")),
    }
    if let Some((path, _)) = &settings.checkpoints {
        let fix =
            "let the agent's user write there; see \"Where checkpoints can be stored\" in docs/operators.md";
        findings.push(match check::keeps(path) {
            Ok(()) => Finding::ok("checkpoints", format!("{} can be written", path.display())),
            Err(failure) => of(&failure, "checkpoints", fix),
        });
    }
    if let Ok(Some(tls)) = check::certificate(settings)
        && let Some(end) = tls.not_after()
    {
        #[allow(clippy::cast_precision_loss, reason = "exact for 285 million years")]
        let left = end as f64 - super::clock::now();
        findings.push(certificate(left));
    }
    findings
}

fn certificate(left: f64) -> Finding {
    const CHECK: &str = "certificate";
    let fix = "renew the files of tlsCertFile and tlsPrivateKeyFile; the agent reads them within ten seconds";
    if left <= 0.0 {
        Finding::failure(CHECK, format!("the agent's certificate expired {} ago", span(-left)), fix)
    } else if left < SOON {
        Finding::warning(CHECK, format!("the agent's certificate expires in {}", span(left)), fix)
    } else {
        Finding::ok(CHECK, format!("the agent's certificate expires in {}", span(left)))
    }
}

/// A client of the API server, if one is configured and the credentials are usable.
pub(super) async fn credentials(settings: &Settings) -> (Option<Client>, Option<Finding>) {
    match check::credentials(settings).await {
        Ok(client) => (client, None),
        Err(failure) => {
            let fix = "correct the kubeconfig, or renew the credentials that it names";
            (None, Some(of(&failure, "credentials", fix)))
        }
    }
}

fn of(failure: &Failure, check: &'static str, fix: &str) -> Finding {
    Finding::failure(check, failure.message().unwrap_or_default(), fix)
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
