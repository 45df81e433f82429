//! Checks the running agent: its sources, its static pods, its process.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tokio::time::timeout;

use super::PATIENCE;
use super::report::{Finding, span};
use crate::api::seen::{self, Mirrors, Pair, Source, Sources};
use crate::cli::ClientArgs;
use crate::cli::client::Server;
use crate::config::failure::Failure;
use crate::config::{DEFAULT_ADDRESS, DEFAULT_PORT, Given, Settings};

const AGENT: &str = "agent";
const SOURCES: &str = "sources";
const STATIC_PODS: &str = "static pods";

/// Seconds of silence of a source that are a warning. The watch of an API server counts as dead after 150 s.
const LATE: u64 = 150;
/// Seconds of silence of a source that are a failure, like in the alert `PodIndexSourceSilent`.
const SILENT: u64 = 300;

/// The agent's answers, or the error.
pub(super) struct Agent {
    place: String,
    answers: Result<Answers, String>,
}

struct Answers {
    sources: Sources,
    mirrors: Mirrors,
    metrics: Metrics,
}

/// The response of `/metrics`.
pub(super) struct Metrics(String);

impl Metrics {
    /// The value of a metric without labels.
    pub(super) fn value(&self, name: &str) -> Option<f64> {
        seen::value(&self.0, name)
    }

    fn version(&self) -> Option<&str> {
        self.0.split("pod_index_build_info{version=\"").nth(1)?.split('"').next()
    }
}

impl Agent {
    /// Asks the agent that the flags or its settings name.
    pub(super) async fn ask(given: &Given, client: &ClientArgs, settings: Option<&Settings>) -> Self {
        let default = settings.map_or((DEFAULT_ADDRESS, DEFAULT_PORT), |settings| {
            (settings.address.ip(), settings.address.port())
        });
        // An agent that serves on all addresses also serves on loopback.
        let here =
            |address: IpAddr| if address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address };
        let server = Server::new(&given.server, client, (here(default.0), default.1));
        let server = match server {
            Ok(server) => server,
            Err(failure) => return Self { place: String::new(), answers: Err(words(&failure)) },
        };
        let answers = match timeout(PATIENCE, answers(&server)).await {
            Ok(answers) => answers.map_err(|failure| words(&failure)),
            Err(_) => Err(format!("no answer from {} within {PATIENCE:?}", server.place)),
        };
        Self { place: server.place, answers }
    }

    /// The metrics, if an agent answers.
    pub(super) fn metrics(&self) -> Option<&Metrics> {
        self.answers.as_ref().ok().map(|answers| &answers.metrics)
    }

    pub(super) fn findings(&self, settings: Option<&Settings>) -> Vec<Finding> {
        let Answers { sources, mirrors, metrics } = match &self.answers {
            Ok(answers) => answers,
            Err(why) => {
                let fix = if why.contains("does it speak TLS?") {
                    "give doctor the authority that signed the agent's certificate: --certificate-authority FILE"
                } else {
                    "start the agent, or say where it serves with --address and --port (with TLS, also \
                     --certificate-authority)"
                };
                let why_not = "no agent answers";
                return vec![
                    Finding::warning(AGENT, why, fix),
                    Finding::skipped(SOURCES, why_not),
                    Finding::skipped(STATIC_PODS, why_not),
                ];
            }
        };
        let version = metrics.version().unwrap_or("unknown");
        let answer = format!("version {version} answers on {} for the node {:?}", self.place, sources.node);
        let mut findings = vec![match settings {
            Some(settings) if settings.node.as_str() != sources.node => Finding::warning(
                AGENT,
                format!("{answer}; the settings name the node {:?}", settings.node.as_str()),
                "give the agent and doctor the same --node-name",
            ),
            _ if version != env!("CARGO_PKG_VERSION") => Finding::warning(
                AGENT,
                format!("{answer}; this program is version {}", env!("CARGO_PKG_VERSION")),
                "restart the agent after an upgrade",
            ),
            _ => Finding::ok(AGENT, answer),
        }];
        findings.extend(sources.sources.iter().map(|source| {
            let period = settings.map_or(Duration::ZERO, |settings| settings.period_of(&source.source));
            judge(source, period)
        }));
        findings.push(static_pods(mirrors));
        findings
    }
}

fn words(failure: &Failure) -> String {
    failure.message().unwrap_or_default().to_owned()
}

async fn answers(server: &Server) -> Result<Answers, Failure> {
    let sources = server.get_json("/sources").await?;
    let mirrors = server.get_json("/mirrors").await?;
    let metrics = server.get("/metrics", &[]).await?;
    Ok(Answers { sources, mirrors, metrics: Metrics(String::from_utf8_lossy(&metrics).into_owned()) })
}

/// `period`: how often the source is read, if it is read periodically.
fn judge(source: &Source, period: Duration) -> Finding {
    let Source { source: name, origin, seen, pods, seconds_since_heard, problems, .. } = source;
    let problem = problems.iter().find(|problem| problem.is_grave()).map(|problem| problem.words(origin));
    let place = format!("{name} ({origin})");
    let look = "see \"It is not ready\" in docs/operators.md";
    if !seen {
        let why = problem.map(|problem| format!(": {problem}")).unwrap_or_default();
        return Finding::failure(SOURCES, format!("{place}: not read yet{why}"), look);
    }
    let silence = seconds_since_heard.unwrap_or_default();
    #[allow(clippy::cast_precision_loss, reason = "seconds")]
    let age = span(silence as f64);
    let message = format!("{place}: {pods} pods, last heard {age} ago");
    let overdue = |limit: u64| silence > limit.max(3 * period.as_secs());
    let because = problem.as_ref().map(|problem| format!("; {problem}")).unwrap_or_default();
    if overdue(SILENT) {
        return Finding::failure(SOURCES, format!("{message}{because}"), look);
    }
    if overdue(LATE) || problem.is_some() {
        let fix = "GET /sources lists all problems; see \"A pod is missing\" in docs/operators.md";
        return Finding::warning(SOURCES, format!("{message}{because}"), fix);
    }
    Finding::ok(SOURCES, message)
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
    let fix = "see docs/mirror-pods.md; GET /mirrors lists them";
    let is_wrong = |pair: &&Pair| !matches!(pair.state.as_deref(), None | Some("inSync" | "finished"));
    let wrong = pods.iter().filter(is_wrong).count();
    if let Some(problem) = problem {
        return Finding::warning(STATIC_PODS, format!("{message}; {problem}"), fix);
    }
    if wrong > 0 || !orphans.is_empty() {
        return Finding::warning(STATIC_PODS, format!("{message}; {wrong} not in sync"), fix);
    }
    Finding::ok(STATIC_PODS, message)
}

#[cfg(test)]
mod tests {
    use super::super::report::Outcome;
    use super::*;
    use crate::api::seen::Problem;

    fn source(seen: bool, heard: Option<u64>, kinds: &[&str]) -> Source {
        let problem = |kind: &&str| Problem {
            kind: (*kind).to_owned(),
            origin: "a.yaml".to_owned(),
            line: Some(4),
            field: Some("spec".to_owned()),
            message: "bad".to_owned(),
        };
        Source {
            source: "file".to_owned(),
            origin: "/pods".to_owned(),
            seen,
            pods: 2,
            seconds_since_heard: heard,
            problems: kinds.iter().map(problem).collect(),
            ..Source::default()
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
            (source(true, Some(3), &["skipped", "warning", "unhinted"]), short, Outcome::Ok, "3 s ago"),
            (source(true, Some(3), &["skipped", "syntax"]), short, Outcome::Warning, "a.yaml:4: spec: bad"),
            (
                Source { origin: "a.yaml".to_owned(), ..source(false, None, &["syntax"]) },
                short,
                Outcome::Failure,
                "file (a.yaml): not read yet: a.yaml:4: spec: bad",
            ),
            (unreadable, short, Outcome::Failure, "file (/pods): not read yet: bad"),
            (source(true, Some(151), &[]), short, Outcome::Warning, "2 min ago"),
            (
                source(true, Some(301), &["request"]),
                short,
                Outcome::Failure,
                "5 min ago; a.yaml:4: spec: bad",
            ),
            (source(true, Some(301), &[]), Duration::from_secs(3600), Outcome::Ok, "5 min ago"),
            (source(false, None, &["request"]), short, Outcome::Failure, "not read yet: a.yaml:4: spec: bad"),
        ] {
            let finding = judge(&source, period);
            assert_eq!(finding.result, result, "{finding:?}");
            assert!(finding.message.ends_with(words), "{finding:?}");
        }
    }
}
