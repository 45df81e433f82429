//! The node agent: pods from their sources, into the index, out by HTTP and on the terminal. The binary `pod-index`.
//!
//! This module ties the others together, and is the only one that may. It must not know how any of them does its work.
//!
//! ```text
//! file ─┐                                                               ┌─> HTTP
//! http ─┼─> bounded channel ─> the one writer thread (merge) ─> Reader ─┤
//! api  ─┘                                                               └─> the table
//! ```
//!
//! # Signals
//! | signal | what it does |
//! |---|---|
//! | SIGTERM, Ctrl-C | the first: no new connections, requests under way end, at most 7 s, and the last checkpoints are written, 12 s after the signal at most; the second: ends at once |
//! | SIGHUP | the configuration file and the TLS files are read anew and the sources follow, all of it or nothing; not with `--once` |
//!
//! # Exit codes
//! | code | meaning |
//! |---|---|
//! | 0 | done; also after a first SIGTERM or Ctrl-C |
//! | 1 | the answer is no: nothing found; with `--once`, a manifest that cannot be used; with `--check`, no manifests there |
//! | 2 | the command line or the configuration is wrong |
//! | 3 | the work cannot be done: an address in use, no agent that answers; with `--once`, a source that says nothing |
//! | 4 | asked to keep the mirror pods of a node on which a kubelet runs |
//! | 130, 143 | a second Ctrl-C or SIGTERM, which waits for nothing |

mod access;
mod api_requests;
mod api_types;
mod check;
mod checkpoints;
mod cli;
mod client;
mod duration;
mod events;
mod exit;
mod format;
mod headers;
mod log;
mod metrics;
mod mirrors;
mod pod_api;
mod query;
mod readiness;
mod reference_managers;
mod refusal;
mod reload;
mod run;
mod serve;
mod settings;
mod shutdown;
mod signals;
mod source_tasks;
mod systemd;
mod table;
mod tls;
mod top;
mod writer_thread;

use std::process::ExitCode;

use clap::Parser;

/// Runs the agent, or asks a running one, as the command line says; returns what the process should exit with.
#[must_use]
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let done = match cli.command {
        None => {
            let given = settings::Given { run: cli.run, server: cli.server, output: cli.output };
            cli.client.is_not_for_serving().and_then(|()| given.resolve()).and_then(|settings| {
                if given.run.check || given.run.check_online {
                    check::check(&settings, given.run.check_online)
                } else {
                    run::run(&given, settings)
                }
            })
        }
        Some(query) => query::ask(&query, &cli.server, &cli.client, cli.output),
    };
    exit::code(done)
}
