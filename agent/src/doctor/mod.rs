//! `pod-index doctor`: checks an installation and suggests a fix for each problem.
//!
//! ```text
//! configuration ── the settings and the files that they name
//! clock, rights ── the API server
//! kubelet       ── this node
//! running       ── the agent that runs here: sources, static pods
//! limits        ── file events, descriptors, memory
//! ```
//! This module only reads. It changes nothing, and prints neither tokens nor pods.

mod clock;
mod configuration;
mod kubelet;
mod limits;
mod report;
mod rights;
mod running;

use std::net::SocketAddr;
use std::time::Duration;

use kube::Client;
use pod_index_kubelet::sources::api_server::server_url;

use self::report::{Finding, Outcome, Report};
use crate::cli::{self, ClientArgs, format};
use crate::config::args::ServerArgs;
use crate::config::failure::Failure;
use crate::config::{Given, NO_SOURCES, Settings, rule};
use crate::run::check;

/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs all checks and prints the findings.
pub(crate) fn examine(
    given: &Given,
    server: &ServerArgs,
    client: &ClientArgs,
    healthz: SocketAddr,
) -> Result<(), Failure> {
    for (flag, is_given) in [("--once", given.run.once), ("--check", given.run.check)] {
        rule(!is_given, format!("doctor takes the settings of an agent that serves, without {flag}"))?;
    }
    let runtime = cli::runtime_apart()?;
    let report = Report::new(runtime.block_on(findings(given, server, client, healthz)));
    runtime.shutdown_background();
    format::answer(given.output, &report, Report::table)?;
    match report.result {
        Outcome::Ok | Outcome::Skipped => Ok(()),
        Outcome::Warning => Err(Failure::No(None)),
        Outcome::Failure => Err(Failure::Ill),
    }
}

async fn findings(
    given: &Given,
    server: &ServerArgs,
    client: &ClientArgs,
    healthz: SocketAddr,
) -> Vec<Finding> {
    let (settings, finding) = configuration::settings(given);
    let settings = settings.as_ref();
    let (mut findings, mut file_events) = (vec![finding], None);
    if let Some(settings) = settings {
        file_events = Some(configuration::check(settings, &mut findings).await);
        let server = api_server(settings, &mut findings).await;
        kubelet::check(settings, server, healthz, &mut findings).await;
    }
    let mut of_the_agent = settings.map_or(server, |settings| &settings.server).clone();
    // Before the socket of the file.
    if given.names_an_address() {
        of_the_agent.socket = None;
    }
    let answers = running::ask(of_the_agent, client).await;
    // The agent may have flags that doctor was not given. That is no fault of the agent.
    if answers.is_ok() && given.run.config.is_none() && findings[0].message == NO_SOURCES {
        findings[0] = Finding::skipped(configuration::SETTINGS, configuration::NOT_GIVEN);
    }
    running::check(answers.as_ref(), settings, &mut findings);
    findings.extend(file_events);
    findings.extend(limits::check(answers.as_ref().ok().map(|answers| &*answers.metrics)));
    findings
}

/// Checks the credentials, the clock, the rights, and listing and watching pods. Returns a client and the difference of
/// the server's clock, if the server answers.
async fn api_server(settings: &Settings, findings: &mut Vec<Finding>) -> Option<(Client, f64)> {
    const CHECK: &str = "API server";
    if !settings.given.has_api_server() {
        findings.push(Finding::skipped(CHECK, "no API server is configured"));
        return None;
    }
    let client = match check::credentials(settings).await {
        Ok(client) => client?,
        Err(failure) => {
            let fix = "correct the kubeconfig, or renew the credentials that it names";
            findings.push(Finding::of("credentials", Err(failure), fix));
            findings.push(Finding::skipped(CHECK, "there are no usable credentials"));
            return None;
        }
    };
    let offset = match clock::offset(&client).await {
        Ok(offset) => offset,
        Err(why) => {
            let fix = "see whether the server runs, and whether this node reaches it: firewall, proxy, the kubeconfig's \
                       server and certificate-authority";
            let server = server_url(settings.given.kubeconfig.as_deref()).await;
            let message = format!("{} does not answer: {why}", server.as_deref().unwrap_or("it"));
            findings.push(Finding::failure(CHECK, message, fix));
            return None;
        }
    };
    findings.push(clock::judge(offset));
    if rights::check(settings, &client, findings).await {
        let done = check::api_server(settings, client.clone()).await;
        let done = done.map(|()| "it lists and watches pods for the agent".to_owned());
        let fix = "for Unauthorized: renew the token or the certificate that the kubeconfig names";
        findings.push(Finding::of(CHECK, done, fix));
    }
    Some((client, offset))
}
