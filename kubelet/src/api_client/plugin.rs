//! Runs the credential plugin of a kubeconfig (`exec`). kube's own code cannot stop a plugin that hangs.

use std::io::ErrorKind;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Config;
use kube::client::AuthError;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time;

use super::command::{Ended, output};
use crate::blocking::OneThread;
use crate::text::{shorten, shorten_to};

/// A credential plugin and its time limit.
pub(super) struct Plugin {
    exec: ExecConfig,
    limit: Duration,
    /// Starts it. While a start hangs, for example because the plugin's file system does, no other begins.
    thread: OneThread,
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
        let thread = OneThread::new("plugin");
        (!is_preferred).then_some(Self { exec, limit, thread })
    }

    /// Runs the plugin in a new process group. Kills the group if this takes longer than the limit, or
    /// if the future is dropped.
    pub(super) async fn run(&self) -> kube::Result<Issued> {
        self.ended().await.and_then(|ended| self.issued(ended)).map_err(kube::Error::Auth)
    }

    async fn ended(&self) -> Result<Ended, AuthError> {
        match time::timeout(self.limit, output(&self.thread, self.command()?)).await {
            Ok(Ok(ended)) => Ok(ended),
            Ok(Err(error)) if error.kind() == ErrorKind::FileTooLarge => {
                Err(AuthError::AuthExec(format!("{self} writes too much to its standard output")))
            }
            Ok(Err(error)) => {
                Err(AuthError::AuthExec(format!("the credential plugin cannot be started: {error}")))
            }
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
        Ok(command)
    }

    /// The credentials in the output. Errors do not quote the standard output.
    fn issued(&self, ended: Ended) -> Result<Issued, AuthError> {
        let Ended { output: Output { status, stdout, stderr }, is_whole } = ended;
        if !status.success() {
            let ended = status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"));
            let said = String::from_utf8_lossy(&stderr);
            let said = match &*said.split_whitespace().collect::<Vec<_>>().join(" ") {
                "" => "nothing on standard error".to_owned(),
                said => shorten_to(said, 1024),
            };
            return Err(AuthError::AuthExec(format!("the credential plugin ended with {ended}: {said}")));
        }
        let answer = if is_whole { decoded(&stdout) } else { self.decoded_if_all(&stdout) }?;
        let mut issued = answer.status.ok_or(AuthError::ExecPluginFailed)?;
        // As in Go, an empty field counts as a missing one.
        for field in [&mut issued.token, &mut issued.client_certificate_data, &mut issued.client_key_data] {
            field.take_if(|value| value.is_empty());
        }
        let has_certificate = issued.client_certificate_data.is_some();
        if has_certificate != issued.client_key_data.is_some() {
            return Err(AuthError::AuthExec(format!(
                "{self} issued a certificate without a key, or a key alone"
            )));
        }
        if issued.token.is_none() && !has_certificate {
            // The server would treat the client as `system:anonymous`.
            return Err(AuthError::AuthExec(format!("{self} issued neither a token nor a certificate")));
        }
        Ok(issued)
    }

    /// Decodes an output that may be only the beginning of an answer. So it has to be JSON, which is invalid without its last
    /// brace. YAML that is cut may still be valid, with half of a token and without the time at which the token expires.
    fn decoded_if_all(&self, stdout: &[u8]) -> Result<Answer, AuthError> {
        serde_json::from_slice(stdout).map_err(|_incomplete| {
            AuthError::AuthExec(format!(
                "{self} has left a process behind that keeps its standard output open, and what is there so far is no \
                 complete answer in JSON"
            ))
        })
    }

    /// The error message for a plugin without an answer.
    pub(super) fn silent_for(&self, time: Duration) -> String {
        format!("{self} did not answer in {} s", time.as_secs_f32())
    }
}

/// Decodes a complete output. Some plugins answer in YAML.
fn decoded(stdout: &[u8]) -> Result<Answer, AuthError> {
    serde_saphyr::from_slice(stdout).map_err(|error| {
        let place = error
            .location()
            .map_or_else(String::new, |place| format!(" (line {}, column {})", place.line(), place.column()));
        AuthError::AuthExec(format!("the credential plugin's answer cannot be decoded{place}"))
    })
}

impl std::fmt::Display for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let command = self.exec.command.as_deref().unwrap_or_default();
        write!(f, "the credential plugin {:?}", shorten(command))
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A file system that hangs would keep a thread for each renewal.
    #[tokio::test]
    async fn while_a_start_of_the_plugin_hangs_no_other_begins() {
        let mut config = Config::new("http://127.0.0.1:1".parse().unwrap());
        let answer = r#"{"status": {"token": "one"}}"#;
        let exec = json!({ "command": "echo", "args": [answer], "interactiveMode": "Never" });
        config.auth_info.exec = Some(serde_json::from_value(exec).unwrap());
        let plugin = Plugin::take(&mut config, Duration::from_secs(60)).unwrap();
        let (release, released) = mpsc::channel::<()>();
        let mut hanging = plugin.thread.start(move || released.recv()).unwrap();
        for _ in 0..2 {
            let error = plugin.run().await.err().expect("it has started");
            assert!(error.to_string().contains("an earlier attempt has not ended"), "{error}");
        }
        release.send(()).unwrap();
        hanging.ended().await.unwrap();
        assert_eq!(plugin.run().await.unwrap().token.as_deref(), Some("one"));
    }
}
