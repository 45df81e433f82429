//! The node agent, binary `pod-index`: reads pods from their sources into the index and serves them over HTTP and on
//! the terminal.
//!
//! This module connects the others; no other module may. It must not know how any of them works. `docs/contributing/code.md`
//! says what each module may use.
//!
//! ```text
//! manifests, a URL ─────────────┐                            thread `index`:                       ┌─> HTTP: /whois
//! the kubelet's port or socket ─┼─> bounded channel of pods ─> merge ─> join ─> Writer ─> Reader ──┼─> thread `changes` ─> HTTP: /pods, watches
//! the API server ─┬─────────────┘                                       ^                          ├─> the kubelet's Pods API, served
//!                 └─ Namespaces, Nodes, owners ─────────────────────────┘                          ├─> checkpoints, mirror pods
//!                                                                                                  └─> metrics, the table on a terminal
//! ```
//!
//! # Signals
//! | signal | what it does |
//! |---|---|
//! | SIGTERM, Ctrl-C | the first: accepts no new connections, gives open requests 7 s, then writes the last checkpoints, at most 12 s after the signal, or 2 s if a part of the agent has stopped; the second: ends at once |
//! | SIGHUP | reads the configuration file again; in a terminal, or with `--once`, as SIGTERM |
//! | SIGUSR1, SIGUSR2 | logs at `debug`; logs at the configured level again |
//!
//! # Exit codes
//! | code | meaning |
//! |---|---|
//! | 0 | success; without `--once`, also after a first SIGTERM or Ctrl-C |
//! | 1 | the answer is no: nothing found; with `--once`, an unusable manifest; with `--check`, something without which the agent would run, such as the manifests; `doctor` has a warning |
//! | 2 | the command line or the configuration is wrong; `doctor` has found a failure |
//! | 3 | the command failed: an address in use, no agent answers, a part of the agent has panicked; with `--once`, a source does not respond |
//! | 4 | asked to manage the mirror pods of a node on which a kubelet runs |
//! | 129, 130, 143 | a second SIGHUP of a terminal, Ctrl-C or SIGTERM: ends at once; of any other command than the agent, the first, but `top` then ends with 0 |

#![forbid(unsafe_code)]

mod api;
mod cli;
mod config;
mod doctor;
mod http;
mod kubelet_api;
mod metrics;
mod pipeline;
mod pod_api;
mod run;
mod tasks;
mod vitals;
mod whois;

use std::process::ExitCode;

use self::cli::{Cli, Command, generate, kubeconfig, query};
use self::config::failure::{self, Failure};
use self::config::log::format_in_use;
use self::run::check;
use self::run::signals::ending_plugins;

/// Runs the agent or queries a running one, as the command line says. Returns the exit code of the process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let done = cli::help::parse(&arguments).and_then(|cli| perform(&cli));
    failure::code(done, format_in_use(&arguments))
}

/// Does what the command line says.
fn perform(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        None => {
            config::no_client_options(&cli.client, &cli.run.settings.tls, &cli.written)?;
            let invocation = cli.invocation();
            let settings = invocation.resolve()?;
            if cli.run.check {
                ending_plugins(|| check::check(&invocation, &settings))
            } else {
                run::run(invocation, settings)
            }
        }
        Some(Command::Query(query)) => query::ask(query, &cli.server, &cli.client, &cli.written, cli.output),
        Some(Command::Doctor { .. }) => {
            ending_plugins(|| doctor::examine(&cli.invocation(), &cli.server, &cli.client))
        }
        Some(Command::Completion { shell }) => generate::completion(*shell),
        Some(Command::Man { command }) => generate::manual(command.as_deref()),
        Some(Command::Kubeconfig { token_file }) => {
            kubeconfig::show(&cli.server, &cli.client, &cli.written, token_file.as_deref())
        }
    }
}
