//! Queries a running agent and prints the response.

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

use super::client::{Server, escaped};
use super::patience::{PATIENCE, Patience};
use super::{Output, Query, runtime};
use super::{format, list, top, whois};
use crate::api::table;
use crate::config::failure::Failure;
use crate::config::subjects::{ClientTls, ServerAddress};
use crate::config::written::Written;
use crate::pipeline::removed::REMOVED_ANNOTATION;

/// Makes one query.
pub(crate) fn ask(
    query: &Query,
    server: &ServerAddress,
    client: &ClientTls,
    written: &Written,
    output: Output,
) -> Result<(), Failure> {
    let server = Server::new(server, client, written)?;
    match query {
        Query::Get { namespace, pod } => {
            let found = runtime()?.block_on(find(&server, namespace.as_deref(), pod))?;
            match output {
                Output::Wide | Output::Name => list::show(&found, output)?,
                Output::Table | Output::Json | Output::Yaml => {
                    format::answer(output, &found, |pod| table::pods([pod]))?;
                }
            }
            if let Some(time) = found.annotation(REMOVED_ANNOTATION) {
                format::note(&format!("pod-index: the pod was removed at {time}"));
            }
            Ok(())
        }
        Query::List(asked) => list::run(&server, asked, output),
        Query::Whois(asked) => whois::ask(&server, asked, output),
        Query::Top => top::run(server),
    }
}

/// The pod that the arguments of `get` name.
async fn find(server: &Server, namespace: Option<&str>, pod: &str) -> Result<Pod, Failure> {
    let patience = Patience::of(PATIENCE);
    let full = namespace.map(|namespace| (namespace, pod)).or_else(|| pod.split_once('/'));
    if let Some((namespace, name)) = full {
        let path = format!("/pods/{}/{}", escaped(namespace), escaped(name));
        return server.get_json(&path, &patience).await;
    }
    let unknown = match server.get_json(&format!("/pods/{}", escaped(pod)), &patience).await {
        Err(Failure::No(unknown)) => unknown,
        answer => return answer,
    };
    let mut query = form_urlencoded::Serializer::new(String::new());
    let query = query.append_pair("fieldSelector", &format!("metadata.name={pod}")).finish();
    let path = format!("/api/v1/pods?{query}");
    let pods = match server.get_json::<List<Pod>>(&path, &patience).await {
        // A text that a field selector cannot hold is no name.
        Err(Failure::Usage(_)) => Vec::new(),
        pods => pods?.items,
    };
    match &*pods {
        [] => Err(Failure::No(unknown)),
        [pod] => Ok(pod.clone()),
        pods => {
            let names = pods.iter().map(|pod| format!("{}/{}", pod.namespace(), pod.name()));
            let names = names.collect::<Vec<_>>().join(", ");
            Err(Failure::No(Some(format!("{} pods have the name {pod:?}: {names}", pods.len()))))
        }
    }
}
