//! Reads and checks a kubeconfig, and creates clients of the API server. Errors quote nothing of the kubeconfig.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tokio::runtime::Handle;

use crate::api_client::{self, ApiClient, ConnectionOptions};
use crate::blocking;
use crate::sources::{Problem, ProblemKind};
use crate::text::{api_causes, shorten, yaml_problem};

/// A client of the API server that the kubeconfig names.
///
/// Without a path, uses `$KUBECONFIG`, then `~/.kube/config`, then, in a pod, the service account. The client
/// is made by [`api_client`](crate::api_client), and connects with its first request.
///
/// # Examples
/// ```no_run
/// use pod_index_kubelet::sources::NodeName;
/// use pod_index_kubelet::sources::api_server::{ApiServer, connect};
///
/// # async fn run() -> Result<(), pod_index_kubelet::sources::Problem> {
/// let pods = ApiServer::new(connect(None).await?).node(&NodeName::new("node-1")).pods();
/// # drop(pods);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the file is missing, or names no server, an unknown user, unusable credentials, or unreadable
/// certificates. Errors quote nothing of the file.
pub async fn connect(path: Option<&Path>) -> Result<Client, Problem> {
    let user_agent = concat!("pod-index/", env!("CARGO_PKG_VERSION"));
    connect_with(load_config(path).await?, path, user_agent).await.map(|api| api.client())
}

/// Reads a kubeconfig, or the settings of a pod's service account, as [`connect`] does.
///
/// # Errors
/// If the file is missing, or names no server or an unknown user. Errors quote nothing of the file.
pub async fn load_config(path: Option<&Path>) -> Result<Config, Problem> {
    let file = path.map(Path::to_owned);
    let runtime = Handle::current();
    let read = blocking::run("kubeconfig", move || runtime.block_on(read(file.as_deref()))).await;
    read.unwrap_or_else(|unfinished| Err(wrong(path, unfinished.to_string())))
}

/// The scheme, host and port of the API server that [`connect`] would use, for messages. `None` if the kubeconfig is
/// unusable.
pub async fn server_url(path: Option<&Path>) -> Option<String> {
    let url = load_config(path).await.ok()?.cluster_url;
    let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    // Without a user and a password, and without a path.
    Some(format!("{}://{}{port}", url.scheme_str()?, url.host()?))
}

/// Like [`connect`], with what [`load_config`] has read from `path`, and with another `User-Agent`. Each client of the
/// result has connections of its own.
///
/// # Errors
/// Like [`connect`]; also if `user_agent` is not a valid header value.
pub async fn connect_with(
    config: Config,
    path: Option<&Path>,
    user_agent: &str,
) -> Result<ApiClient, Problem> {
    let api = ApiClient::new(config, user_agent, &ConnectionOptions::default()).await;
    api.map_err(|error| wrong(path, api_causes(&error)))
}

/// Runs the credential plugin, if the kubeconfig at `path` names one. The first request would do so, too.
///
/// # Errors
/// If it fails, or does not answer in time.
pub async fn authenticate(api: &ApiClient, path: Option<&Path>) -> Result<(), Problem> {
    api.authenticate().await.map_err(|error| wrong(path, api_causes(&error)))
}

/// Checks, without contacting the server, whether [`connect`] would find valid credentials.
///
/// # Errors
/// Like `connect`; also if the client certificate has expired.
pub async fn check_kubeconfig(path: Option<&Path>) -> Result<(), Problem> {
    let config = load_config(path).await?;
    if let Ok(Some(why)) = blocking::run("kubeconfig", move || api_client::expired(&config)).await {
        return Err(wrong(path, why));
    }
    Ok(())
}

async fn read(path: Option<&Path>) -> Result<Config, Problem> {
    let found = match path {
        Some(path) => Kubeconfig::read_from(path).map(Some),
        None => match Kubeconfig::read() {
            // No file, as in a pod.
            Err(KubeconfigError::FindPath) => Ok(None),
            Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(None)
            }
            // A file without a context, as some tools leave behind.
            Ok(config) if config.current_context.is_none() => Ok(None),
            read => read.map(Some),
        },
    };
    match found.map_err(|error| problem(path, &error))? {
        Some(kubeconfig) => {
            user_is_there(&kubeconfig).map_err(|message| wrong(path, message))?;
            let authorities = authorities_file(&kubeconfig);
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            let mut config = config.map_err(|error| problem(path, &error))?;
            config.root_cert_file = authorities;
            Ok(config)
        }
        None => Config::incluster().map_err(|error| {
            let why = api_causes(&error);
            wrong(path, format!("there is no kubeconfig, and no service account either: {why}"))
        }),
    }
}

fn wrong(path: Option<&Path>, message: String) -> Problem {
    let origin = path.map_or_else(|| "kubeconfig".to_owned(), |path| path.display().to_string());
    Problem::new(ProblemKind::Request, origin, None, None, message)
}

/// Errors that quote the file are reworded: it may hold a token or a key.
fn problem(path: Option<&Path>, error: &KubeconfigError) -> Problem {
    let message = match error {
        KubeconfigError::Parse(error) => {
            let line = error.without_snippet().location().map(|location| location.line());
            let message = format!("is not a kubeconfig: {}", yaml_problem(error));
            return Problem { line, ..wrong(path, message) };
        }
        // Its text repeats the path.
        KubeconfigError::ReadConfig(error, _) => format!("cannot be read: {error}"),
        KubeconfigError::ParseCertificates(_) => {
            "certificate-authority holds no certificates in PEM".to_owned()
        }
        error => api_causes(error),
    };
    wrong(path, message)
}

/// The file of the certificate authorities of the current context's cluster. Data in the kubeconfig takes precedence.
fn authorities_file(kubeconfig: &Kubeconfig) -> Option<PathBuf> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|named| named.name == *current)?.context.as_ref()?;
    let named = kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?;
    let cluster = named.cluster.as_ref().filter(|cluster| cluster.certificate_authority_data.is_none())?;
    cluster.certificate_authority.as_ref().map(PathBuf::from)
}

/// With a missing user, the server would treat the client as `system:anonymous`.
fn user_is_there(kubeconfig: &Kubeconfig) -> Result<(), String> {
    let name = kubeconfig.current_context.as_deref().unwrap_or_default();
    let named = kubeconfig.contexts.iter().find(|context| context.name == name);
    let Some(user) = named.and_then(|named| named.context.as_ref()?.user.as_deref()) else { return Ok(()) };
    let is_there =
        |user: &str| kubeconfig.auth_infos.iter().any(|info| info.name == user && info.auth_info.is_some());
    if user.is_empty() || is_there(user) {
        return Ok(());
    }
    let name = shorten(name);
    let user = shorten(user);
    Err(format!("the context {name:?} names the user {user:?}, and there is no such user"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use pod_index_test_support::files::Directory;
    use rcgen::generate_simple_self_signed;
    use serde_json::{Value, json};

    use super::*;

    /// With its path, the client reads the file again when the authorities rotate. Without, it would trust the old ones until
    /// it is restarted.
    #[tokio::test]
    async fn a_file_of_authorities_is_followed_and_data_in_the_kubeconfig_is_not() {
        let directory = Directory::new();
        let pem = generate_simple_self_signed(vec!["api".to_owned()]).unwrap().cert.pem();
        directory.write("ca.crt", &pem);
        directory.write("other.crt", &pem);
        let file = json!("ca.crt");
        let data = json!(ByteString(pem.into_bytes()));
        for (authority, expected) in [
            (json!({ "certificate-authority": file }), Some(directory.at("ca.crt"))),
            (json!({ "certificate-authority-data": data }), None),
            // kubectl takes the data, too.
            (json!({ "certificate-authority": file, "certificate-authority-data": data }), None),
            (json!({}), None),
        ] {
            let kubeconfig = kubeconfig(&authority);
            directory.write("kubeconfig", kubeconfig.to_string());
            let config = load_config(Some(&directory.at("kubeconfig"))).await.unwrap();
            assert_eq!(config.root_cert_file, expected, "{kubeconfig}");
        }
    }

    /// Of two clusters. The current one has this authority.
    fn kubeconfig(authority: &Value) -> Value {
        let mut cluster = json!({ "server": "https://127.0.0.1:1" });
        cluster.as_object_mut().unwrap().extend(authority.as_object().unwrap().clone());
        let other = json!({ "server": "https://127.0.0.1:2", "certificate-authority": "other.crt" });
        json!({
            "clusters": [{ "name": "other", "cluster": other }, { "name": "mine", "cluster": cluster }],
            "users": [{ "name": "me", "user": {} }],
            "contexts": [
                { "name": "away", "context": { "cluster": "other", "user": "me" } },
                { "name": "here", "context": { "cluster": "mine", "user": "me" } },
            ],
            "current-context": "here",
        })
    }
}
