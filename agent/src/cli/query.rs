//! Queries a running agent and prints the response.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;

use super::client::{Server, escaped};
use super::{ClientArgs, Output, Query, ServerArgs, runtime};
use super::{format, top, watch, whois};
use crate::api::table;
use crate::api::types::Translation;
use crate::config as settings;
use crate::config::failure::Failure;
use crate::pipeline::removed::REMOVED_ANNOTATION;

/// Timeout of the whole exchange.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Makes one query.
pub(crate) fn ask(
    query: &Query,
    server: &ServerArgs,
    client: &ClientArgs,
    output: Output,
) -> Result<(), Failure> {
    let server = Server::new(server, client, (settings::DEFAULT_ADDRESS, settings::DEFAULT_PORT))?;
    match query {
        Query::Get { pod } => {
            let path = match pod.split_once('/') {
                Some((namespace, name)) => format!("/pods/{}/{}", escaped(namespace), escaped(name)),
                None => format!("/pods/{}", escaped(pod)),
            };
            let found = fetch::<Pod>(&server, &path)?;
            format::answer(output, &found, |pod| table::pods([pod]))?;
            let annotations = found.metadata.annotations.as_ref();
            if let Some(time) = annotations.and_then(|all| all.get(REMOVED_ANNOTATION)) {
                eprintln!("pod-index: the pod was removed at {}", table::harmless(time));
            }
            Ok(())
        }
        Query::Translate { uid } => {
            let answer = fetch::<Translation>(&server, &format!("/translate/{}", escaped(uid)))?;
            format::answer(output, &answer, translation_table)?;
            match &answer.pod {
                None if !answer.is_mirror_pod => {
                    Err(Failure::No(Some(format!("no pod has the UID {uid:?}"))))
                }
                _ => Ok(()),
            }
        }
        Query::Whois(asked) => whois::ask(&server, asked, output),
        Query::Top { interval } => top::run(server, interval.0),
        Query::Watch { namespace, selector } => {
            let wanted = watch::Wanted { namespace: namespace.as_deref(), selector: selector.as_deref() };
            watch::run(&server, &wanted, output)
        }
    }
}

fn translation_table(answer: &Translation) -> String {
    let pod = answer.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)).unwrap_or_default();
    let kind = if answer.is_mirror_pod { "mirror" } else { "" };
    table::table(["UID", "KIND", "POD UID", "POD"], [[&*answer.uid, kind, &*answer.pod_uid, &*pod]])
}

/// GETs `path` and reads the response.
fn fetch<T: DeserializeOwned>(server: &Server, path: &str) -> Result<T, Failure> {
    let runtime = runtime()?;
    let late = || Failure::Unable(format!("the agent on {} did not answer within {TIMEOUT:?}", server.place));
    let answer = async { tokio::time::timeout(TIMEOUT, server.get_json(path)).await };
    runtime.block_on(answer).map_err(|_| late())?
}
