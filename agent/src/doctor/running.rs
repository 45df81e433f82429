//! Checks the running agent: its sources and its static pods.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::report::Finding;
use crate::api::seen::{Mirrors, Pair, SeenSource, Sources};
use crate::cli::client::Server;
use crate::cli::patience::{PATIENCE, Patience};
use crate::config::Settings;
use crate::config::failure::Failure;
use crate::config::subjects::{ClientTls, ServerAddress};
use crate::config::written::Written;
use crate::pipeline::readiness::FAILING_AFTER;
use crate::pipeline::sources::period_of;
use pod_index_kubelet::sources::Source;

const AGENT: &str = "agent";
const SOURCES: &str = "sources";
const STATIC_PODS: &str = "static pods";

/// Seconds of silence of a source that are a failure, like in the alert `PodIndexSourceSilent`.
const SILENT: u64 = 300;

/// Where the agent is, and its answers.
type Answers = (String, Sources, Mirrors);

/// Asks the agent that the flags or its settings name.
pub(super) async fn ask(
    mut server: ServerAddress,
    client: &ClientTls,
    written: &Written,
) -> Result<Answers, Failure> {
    // An agent that serves on all addresses also serves on loopback.
    if server.address.is_unspecified() {
        server.address = Ipv4Addr::LOCALHOST.into();
    }
    let server = Server::new(&server, client, written)?;
    let patience = Patience::of(PATIENCE);
    let sources = server.get_json("/sources", &patience).await?;
    let mirrors = server.get_json("/mirrors", &patience).await?;
    Ok((server.place, sources, mirrors))
}

/// Judges what the agent has answered, or that it has not.
pub(super) fn check(
    answers: Result<&Answers, &Failure>,
    settings: Option<&Settings>,
    findings: &mut Vec<Finding>,
) {
    let (place, sources, mirrors) = match answers {
        Ok(answers) => answers,
        Err(failure) => {
            let why = failure.message().unwrap_or_default();
            let fix = if why.contains("does it speak TLS?") {
                "give doctor the authority that signed the agent's certificate: --certificate-authority FILE"
            } else {
                "start the agent, or say where it serves with --address and --port (with TLS, also \
                 --certificate-authority)"
            };
            findings.push(Finding::warning(AGENT, why, fix));
            findings.extend([SOURCES, STATIC_PODS].map(|check| Finding::skipped(check, "no agent answers")));
            return;
        }
    };
    let answer = format!("it answers on {place} for the node {:?}", sources.node);
    findings.push(match settings.map(|settings| settings.node.as_str()) {
        Some(node) if node != sources.node => Finding::warning(
            AGENT,
            format!("{answer}; the settings name the node {node:?}"),
            "give the agent and doctor the same --node-name",
        ),
        _ => Finding::ok(AGENT, answer),
    });
    findings.extend(sources.sources.iter().map(|source| finding_on(source, Reads::of(source, settings))));
    findings.push(static_pods(mirrors));
}

/// How the agent reads a source.
#[derive(Clone, Copy)]
enum Reads {
    Every(Duration),
    /// It is followed.
    Always,
    /// Only the agent's settings say it.
    Unknown,
}

impl Reads {
    /// An agent of another version may have a source that this one does not know.
    fn of(source: &SeenSource, settings: Option<&Settings>) -> Self {
        let role = Source::ALL.into_iter().find(|role| role.as_str() == source.source);
        let Some(role) = role else { return Self::Unknown };
        if role == Source::Api {
            return Self::Always;
        }
        let Some(settings) = settings else { return Self::Unknown };
        // The agent may have a source that doctor's settings do not name.
        settings.kind_of(role).map_or(Self::Unknown, |kind| Self::Every(period_of(settings, kind)))
    }
}

fn finding_on(source: &SeenSource, reads: Reads) -> Finding {
    let SeenSource {
        source: name,
        origin,
        seen,
        pods,
        seconds_since_heard,
        seconds_failing,
        waits_for,
        problems,
        ..
    } = source;
    let problem = problems.iter().find(|problem| problem.is_grave()).map(|problem| problem.words(origin));
    let place = format!("{name} ({origin})");
    let look =
        "see whether its server, or its file system, answers the agent; GET /sources has all its problems";
    let because = |sign| problem.as_ref().map(|problem| format!("{sign} {problem}")).unwrap_or_default();
    if !seen {
        let waits = waits_for.as_ref().map(|what| format!("; it waits for {what}")).unwrap_or_default();
        return Finding::failure(SOURCES, format!("{place}: not read yet{}{waits}", because(":")), look);
    }
    if let Some(failing) = seconds_failing.filter(|failing| *failing >= FAILING_AFTER.as_secs()) {
        let message = format!("{place}: {pods} pods, as last seen; failing for {failing} s{}", because(":"));
        return Finding::failure(SOURCES, message, look);
    }
    let silence = seconds_since_heard.unwrap_or_default();
    let message = format!("{place}: {pods} pods, last heard {silence} s ago{}", because(";"));
    let longest_silence = match reads {
        Reads::Every(period) => SILENT.max(3 * period.as_secs()),
        Reads::Always => SILENT,
        Reads::Unknown => u64::MAX,
    };
    if silence > longest_silence {
        Finding::failure(SOURCES, message, look)
    } else if problem.is_some() {
        let fix = "correct it; other pods are unaffected, unless the source cannot be read at all";
        Finding::warning(SOURCES, message, fix)
    } else {
        Finding::ok(SOURCES, message)
    }
}

/// Number of static pods with a mirror pod, and the manager of mirror pods.
fn static_pods(mirrors: &Mirrors) -> Finding {
    let Mirrors { managed, problem, pods, orphans, .. } = mirrors;
    let mirrored = pods.iter().filter(|pod| pod.mirror_uid.is_some()).count();
    let manager = if *managed { "the agent manages them" } else { "a kubelet manages them, if any" };
    let message = format!(
        "{} static pods, {mirrored} of them with a mirror pod ({manager}); {} mirror pods without a static pod",
        pods.len(),
        orphans.len(),
    );
    let fix = "GET /mirrors names each of them, with its state and the last failure";
    let is_wrong = |pair: &&Pair| !matches!(pair.state.as_deref(), None | Some("inSync" | "finished"));
    let wrong = pods.iter().filter(is_wrong).count();
    match problem.clone().or_else(|| (wrong > 0).then(|| format!("{wrong} not in sync"))) {
        Some(why) => Finding::warning(STATIC_PODS, format!("{message}; {why}"), fix),
        None if orphans.is_empty() => Finding::ok(STATIC_PODS, message),
        None => Finding::warning(STATIC_PODS, message, fix),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Outcome;
    use super::*;
    use crate::api::seen::Problem;

    fn source(seen: bool, heard: Option<u64>, kinds: &[&str]) -> SeenSource {
        let problem = |kind: &&str| Problem {
            kind: (*kind).to_owned(),
            origin: "a.yaml".to_owned(),
            line: Some(4),
            field: Some("spec".to_owned()),
            message: "bad".to_owned(),
        };
        SeenSource {
            source: "file".to_owned(),
            origin: "/pods".to_owned(),
            seen,
            pods: 2,
            seconds_since_heard: heard,
            seconds_failing: None,
            next_try: None,
            waits_for: None,
            problems: kinds.iter().map(problem).collect(),
        }
    }

    #[test]
    fn a_source_is_judged_by_its_silence_and_its_problems() {
        let short = Duration::from_secs(20);
        let mut unreadable = source(false, None, &["directory"]);
        for problem in &mut unreadable.problems {
            problem.origin = "/pods".to_owned();
            (problem.line, problem.field) = (None, None);
        }
        for (source, period, result, words) in [
            (source(true, Some(3), &[]), short, Outcome::Ok, "file (/pods): 2 pods, last heard 3 s ago"),
            (
                source(true, Some(3), &["skipped", "warning", "unhinted", "incomplete"]),
                short,
                Outcome::Ok,
                "3 s ago",
            ),
            (source(true, Some(3), &["skipped", "syntax"]), short, Outcome::Warning, "a.yaml:4: spec: bad"),
            (
                SeenSource { origin: "a.yaml".to_owned(), ..source(false, None, &["syntax"]) },
                short,
                Outcome::Failure,
                "file (a.yaml): not read yet: a.yaml:4: spec: bad",
            ),
            (unreadable, short, Outcome::Failure, "file (/pods): not read yet: bad"),
            (
                SeenSource { waits_for: Some("its next try in 5 s".to_owned()), ..source(false, None, &[]) },
                short,
                Outcome::Failure,
                "file (/pods): not read yet; it waits for its next try in 5 s",
            ),
            (
                source(true, Some(301), &["request"]),
                short,
                Outcome::Failure,
                "301 s ago; a.yaml:4: spec: bad",
            ),
            (source(true, Some(301), &[]), Duration::from_secs(3600), Outcome::Ok, "301 s ago"),
            (
                SeenSource { seconds_failing: Some(119), ..source(true, Some(119), &["request"]) },
                short,
                Outcome::Warning,
                "119 s ago; a.yaml:4: spec: bad",
            ),
            (
                SeenSource { seconds_failing: Some(120), ..source(true, Some(3), &["request"]) },
                Duration::from_secs(3600),
                Outcome::Failure,
                "2 pods, as last seen; failing for 120 s: a.yaml:4: spec: bad",
            ),
            (source(false, None, &["request"]), short, Outcome::Failure, "not read yet: a.yaml:4: spec: bad"),
        ] {
            let finding = finding_on(&source, Reads::Every(period));
            assert_eq!(finding.result, result, "{finding:?}");
            assert!(finding.message.ends_with(words), "{finding:?}");
        }
        let finding = finding_on(&source(true, Some(301), &[]), Reads::Unknown);
        assert_eq!(finding.result, Outcome::Ok, "how often it is read is unknown: {finding:?}");
    }
}
