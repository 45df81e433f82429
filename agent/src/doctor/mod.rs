//! `pod-index doctor`: checks an installation and suggests a fix for each problem.
//!
//! ```text
//! configuration ── the settings, and the files and servers that they name
//! rights        ── the API server
//! running       ── the agent that runs here: sources, static pods
//! ```
//! This module only reads. It changes nothing, and prints neither tokens nor pods.

mod configuration;
mod report;
mod rights;
mod running;

use std::time::Duration;

use pod_index_kubelet::sources::api_server::server_url;

use self::report::{Finding, Outcome, Report};
use crate::cli::{self, format};
use crate::config::failure::Failure;
use crate::config::rules::no_sources;
use crate::config::subjects::{ClientTls, ServerAddress};
use crate::config::{Invocation, Settings, rule};
use crate::pipeline::sources;
use crate::run::check;

/// Timeout of a request to the API server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs all checks and prints the findings.
pub(crate) fn examine(
    invocation: &Invocation,
    server: &ServerAddress,
    client: &ClientTls,
) -> Result<(), Failure> {
    for (flag, is_given) in [("--once", invocation.run.once), ("--check", invocation.run.check)] {
        rule(!is_given, format!("doctor takes the settings of an agent that serves, without {flag}"))?;
    }
    let runtime = cli::runtime()?;
    let report = Report::new(runtime.block_on(findings(invocation, server, client)));
    runtime.shutdown_background();
    format::answer(invocation.output, &report, Report::table)?;
    match report.result {
        Outcome::Ok | Outcome::Skipped => Ok(()),
        Outcome::Warning => Err(Failure::No(None)),
        Outcome::Failure => Err(Failure::Reported),
    }
}

async fn findings(invocation: &Invocation, server: &ServerAddress, client: &ClientTls) -> Vec<Finding> {
    let (settings, sources, finding) = configuration::settings(invocation);
    let settings = settings.as_ref();
    let mut findings = vec![finding];
    let fix = "correct or remove the variable";
    let ignored = invocation.ignored_variables.iter();
    findings.extend(ignored.map(|why| Finding::warning(configuration::SETTINGS, why, fix)));
    if let Some(settings) = settings {
        configuration::check(settings, sources, &mut findings).await;
        api_server(settings, &mut findings).await;
    }
    let mut at = settings.map_or(server, |settings| &settings.server).clone();
    // The file's socket, unless a flag names a port.
    if server.socket.is_none()
        && ["address", "port"].into_iter().any(|flag| invocation.written.is_written(flag))
    {
        at.socket = None;
    }
    let written = settings.map_or(&invocation.written, |settings| &settings.written);
    let answers = running::ask(at, client, written).await;
    // The agent may have flags that doctor was not given. That is no fault of the agent.
    if answers.is_ok() && invocation.run.config.path.is_none() && findings[0].message == no_sources() {
        findings[0] = Finding::skipped(configuration::SETTINGS, configuration::NOT_GIVEN);
    }
    running::check(answers.as_ref(), settings, &mut findings);
    findings
}

/// Checks the credentials, the rights, and listing and watching pods.
async fn api_server(settings: &Settings, findings: &mut Vec<Finding>) {
    const CHECK: &str = "API server";
    let client = match check::credentials(settings).await {
        Ok(Some(client)) => client,
        Ok(None) => {
            findings.push(Finding::skipped(CHECK, "no API server is configured"));
            return;
        }
        Err(failure) => {
            let fix = "correct the kubeconfig, or renew the credentials that it names";
            findings.push(Finding::of("credentials", Err(failure), fix));
            findings.push(Finding::skipped(CHECK, "there are no usable credentials"));
            return;
        }
    };
    if rights::check(settings, &client, findings).await {
        let server = server_url(settings.effective.api_server.kubeconfig.as_deref()).await;
        let server = server.as_deref().unwrap_or("the API server");
        let fix = "for Unauthorized: renew the token or the certificate that the kubeconfig names; otherwise see whether the \
                   server runs, and whether this node reaches it: firewall, proxy, the kubeconfig's server and \
                   certificate-authority";
        let mut pods = sources::pods_of(settings, client);
        pods.times.patience = PATIENCE;
        findings.push(match pods.check().await {
            Ok(()) => Finding::ok(CHECK, format!("{server} lists and watches pods for the agent")),
            Err(problem) => Finding::failure(CHECK, format!("{server}: {problem}"), fix),
        });
    }
}
