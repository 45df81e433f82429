//! What the agent is to do, put together from the command line and the environment, and found to make sense.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::cli::{LogFormat, LogLevel, Output, RunArgs, ServerArgs};
use super::exit::Failure;
use crate::sources::NodeName;

/// What the agent is to do.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) node: NodeName,
    pub(super) static_pod_path: PathBuf,
    pub(super) file_check_frequency: Duration,
    pub(super) address: SocketAddr,
    pub(super) once: bool,
    pub(super) output: Output,
    pub(super) log_level: LogLevel,
    pub(super) log_format: LogFormat,
}

impl Settings {
    pub(super) fn resolve(args: RunArgs, server: &ServerArgs, output: Output) -> Result<Self, Failure> {
        let address = server.address();
        if !address.ip().is_loopback() {
            return Err(Failure::Usage(format!(
                "--address {}: what is served is not for everyone who can reach this node; only loopback addresses will do",
                address.ip()
            )));
        }
        let Some(static_pod_path) = args.pod_manifest_path else {
            let message = "no pods to read: give --pod-manifest-path PATH (--help tells more)";
            return Err(Failure::Usage(message.to_owned()));
        };
        Ok(Self {
            node: node_name(args.hostname_override.as_deref())?,
            static_pod_path,
            file_check_frequency: Duration::from_secs(20),
            address,
            once: args.once,
            output,
            log_level: args.log_level,
            log_format: args.log_format,
        })
    }
}

/// The host's name or the one given, trimmed and in lower case.
///
/// Kubelet: `GetHostname` (`pkg/util/node/node.go`).
fn node_name(given: Option<&str>) -> Result<NodeName, Failure> {
    let (from, name) = match given {
        Some(name) => ("--hostname-override", name.to_owned()),
        None => ("the host's name", gethostname::gethostname().to_string_lossy().into_owned()),
    };
    let name = name.trim().to_lowercase();
    if name.is_empty() {
        return Err(Failure::Usage(format!("{from} is empty, and the node needs a name")));
    }
    Ok(NodeName::new(&name))
}

#[cfg(test)]
mod tests {
    use super::node_name;

    #[test]
    fn a_node_name_is_trimmed_and_in_lower_case() {
        assert_eq!(node_name(Some(" Node-1 \n")).unwrap().as_str(), "node-1");
        assert!(node_name(Some("  ")).is_err());
        assert!(!node_name(None).unwrap().as_str().is_empty());
    }
}
