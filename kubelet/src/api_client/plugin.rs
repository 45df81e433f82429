//! Runs the credential plugin of a kubeconfig (`exec`). kube's own code cannot stop a plugin that hangs.

use std::io;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Config;
use kube::client::AuthError;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time;

/// A credential plugin and its time limit.
pub(super) struct Plugin {
    exec: ExecConfig,
    limit: Duration,
}

/// What a plugin has issued.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Issued {
    pub(super) token: Option<String>,
    expiration_timestamp: Option<Time>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    status: Option<Issued>,
}

impl Plugin {
    /// Takes the plugin out of `config`, so that kube does not run it. `None` if there is none, or if `config`
    /// holds credentials that kube prefers.
    pub(super) fn take(config: &mut Config, limit: Duration) -> Option<Self> {
        let AuthInfo { username, password, token, token_file, exec, .. } = &mut config.auth_info;
        let exec = exec.take()?;
        let is_preferred =
            username.is_some() && password.is_some() || token.is_some() || token_file.is_some();
        (!is_preferred).then_some(Self { exec, limit })
    }

    /// Runs the plugin, as a process group of its own. Kills the group if this takes longer than the limit, or
    /// if the future is dropped.
    pub(super) async fn run(&self) -> kube::Result<Issued> {
        self.output().await.and_then(|output| self.issued(output)).map_err(kube::Error::Auth)
    }

    async fn output(&self) -> Result<Output, AuthError> {
        let mut command = self.command()?;
        let running = Running::default();
        let child = running.clone();
        let (done, output) = oneshot::channel();
        // One thread for each run. The runtime's threads for blocking work are few, and the file source needs
        // them.
        let wait = move || {
            let output = child.start(&mut command).and_then(Child::wait_with_output);
            child.ended();
            let _ = done.send(output);
        };
        thread::Builder::new().name("plugin".to_owned()).spawn(wait).map_err(AuthError::AuthExecStart)?;
        let answer = time::timeout(self.limit, output).await;
        // Kills it if it is still running.
        drop(running);
        match answer {
            Ok(Ok(output)) => output.map_err(AuthError::AuthExecStart),
            Ok(Err(_)) => Err(AuthError::AuthExec(format!("{self} cannot be run"))),
            Err(_) => Err(AuthError::AuthExec(self.silent_for(self.limit))),
        }
    }

    /// The command line and the environment, as in client-go without a terminal.
    fn command(&self) -> Result<Command, AuthError> {
        let exec = &self.exec;
        let mut command = Command::new(exec.command.as_ref().ok_or(AuthError::MissingCommand)?);
        if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
            return Err(AuthError::AuthExec(format!("{self} needs a terminal (interactiveMode: Always)")));
        }
        let mut spec = json!({ "interactive": false });
        if exec.provide_cluster_info {
            let cluster = exec.cluster.as_ref().ok_or(AuthError::ExecMissingClusterInfo)?;
            spec["cluster"] = serde_json::to_value(cluster).map_err(AuthError::AuthExecSerialize)?;
        }
        let info = json!({ "apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec });
        command.args(exec.args.iter().flatten());
        for variable in exec.env.iter().flatten() {
            if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
                command.env(name, value);
            }
        }
        command.env("KUBERNETES_EXEC_INFO", info.to_string());
        for name in exec.drop_env.iter().flatten() {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(command)
    }

    fn issued(&self, output: Output) -> Result<Issued, AuthError> {
        if !output.status.success() {
            return Err(AuthError::AuthExecRun { cmd: self.to_string(), out: Box::new(output) });
        }
        // Some plugins answer in YAML.
        let answer: Answer = serde_saphyr::from_slice(&output.stdout)
            .map_err(|error| AuthError::AuthExecParse(Box::new(error)))?;
        let issued = answer.status.ok_or(AuthError::ExecPluginFailed)?;
        let has_certificate = issued.client_certificate_data.is_some() && issued.client_key_data.is_some();
        if issued.token.is_none() && !has_certificate {
            // The server would treat the client as `system:anonymous`.
            return Err(AuthError::AuthExec(format!("{self} issued neither a token nor a certificate")));
        }
        Ok(issued)
    }

    /// The error message for a plugin without an answer.
    pub(super) fn silent_for(&self, time: Duration) -> String {
        format!("{self} did not answer in {} s", time.as_secs_f32())
    }
}

impl std::fmt::Display for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let command = self.exec.command.as_deref().unwrap_or_default();
        write!(f, "the credential plugin {:?}", crate::text::shorten(command))
    }
}

impl Issued {
    pub(super) fn expires(&self) -> Option<SystemTime> {
        self.expiration_timestamp.as_ref().map(|time| time.0.into())
    }

    /// Puts the client certificate, if there is one, into `config`.
    pub(super) fn identify(&self, config: &mut Config) {
        let (Some(certificate), Some(key)) = (&self.client_certificate_data, &self.client_key_data) else {
            return;
        };
        let base64 = |pem: &str| match serde_json::to_value(ByteString(pem.as_bytes().to_vec())) {
            Ok(Value::String(base64)) => base64,
            _ => unreachable!("a `ByteString` is serialized as a string"),
        };
        config.auth_info.client_certificate_data = Some(base64(certificate));
        config.auth_info.client_key_data = Some(base64(key).into());
    }
}

/// The process of a plugin. Dropping it kills the process group.
#[derive(Clone, Default)]
struct Running(Arc<Mutex<Option<Group>>>);

#[cfg(target_os = "linux")]
type Group = rustix::process::Pid;
/// Elsewhere the plugin is not killed.
#[cfg(not(target_os = "linux"))]
type Group = ();

impl Running {
    fn start(&self, command: &mut Command) -> io::Result<Child> {
        let child = command.spawn()?;
        #[cfg(target_os = "linux")]
        self.set(Some(Group::from_child(&child)));
        Ok(child)
    }

    fn ended(&self) {
        self.set(None);
    }

    fn set(&self, group: Option<Group>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = group;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        #[cfg(target_os = "linux")]
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = group;
    }
}
