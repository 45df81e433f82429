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
use crate::cli::ClientArgs;
use crate::cli::format;
use crate::config::failure::Failure;
use crate::config::{Given, Settings};
use crate::run::check;

/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs all checks and prints the findings.
pub(crate) fn examine(given: &Given, client: &ClientArgs, healthz: SocketAddr) -> Result<(), Failure> {
    for (flag, is_given) in [("--once", given.run.once), ("--check", given.run.check)] {
        if is_given {
            return Err(Failure::Usage(format!(
                "doctor takes the settings of an agent that serves, without {flag}"
            )));
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::unable("cannot start the runtime", error))?;
    let report = Report::new(runtime.block_on(findings(given, client, healthz)));
    runtime.shutdown_background();
    format::answer(given.output, &report, Report::table)?;
    match report.result {
        Outcome::Ok | Outcome::Skipped => Ok(()),
        Outcome::Warning => Err(Failure::No(None)),
        Outcome::Failure => Err(Failure::Ill),
    }
}

async fn findings(given: &Given, client: &ClientArgs, healthz: SocketAddr) -> Vec<Finding> {
    let (settings, mut findings) = configuration::settings(given);
    let settings = settings.as_ref();
    let agent = running::Agent::ask(given, client, settings).await;
    if let Some(settings) = settings {
        let (file_events, manifests) = configuration::manifests(settings).await;
        findings.extend(manifests);
        findings.extend(configuration::others(settings).await);
        let (client, problem) = configuration::credentials(settings).await;
        findings.extend(problem);
        let (of_the_server, offset) = api_server(settings, client.as_ref()).await;
        findings.extend(of_the_server);
        findings.extend(kubelet::check(settings, client.as_ref(), offset, healthz).await);
        findings.extend(agent.findings(Some(settings)));
        findings.push(limits::file_events(file_events));
    } else {
        findings.extend(agent.findings(None));
    }
    findings.push(limits::descriptors(agent.metrics()));
    findings.push(limits::memory(agent.metrics()));
    findings
}

/// Checks the clock, the rights, and listing and watching pods. Also returns the difference of the server's clock.
async fn api_server(settings: &Settings, client: Option<&Client>) -> (Vec<Finding>, Option<clock::Offset>) {
    let Some(api) = &settings.api else {
        let why = "no API server is configured";
        return (vec![Finding::skipped("API server", why)], None);
    };
    let Some(client) = client else {
        return (vec![Finding::skipped("API server", "there are no usable credentials")], None);
    };
    let offset = match clock::offset(client).await {
        Ok(offset) => offset,
        Err(why) => {
            let fix = "see whether the server runs, and whether this node reaches it: firewall, proxy, the kubeconfig's \
                       server and certificate-authority";
            let server = server_url(api.kubeconfig.as_deref()).await;
            let server = server.as_deref().unwrap_or("it");
            return (
                vec![Finding::failure("API server", format!("{server} does not answer: {why}"), fix)],
                None,
            );
        }
    };
    let mut findings = vec![clock::judge(offset)];
    let (rights, may_read) = rights::check(settings, client).await;
    findings.extend(rights);
    if may_read {
        findings.push(match check::api_server(settings, api, client.clone()).await {
            Ok(()) => Finding::ok("API server", "it lists and watches pods for the agent"),
            Err(failure) => {
                let fix = "for Unauthorized: renew the token or the certificate that the kubeconfig names";
                Finding::failure("API server", failure.message().unwrap_or_default(), fix)
            }
        });
    }
    (findings, Some(offset))
}
