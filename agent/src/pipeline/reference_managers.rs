//! The Secrets and `ConfigMaps` of this node's pods, if configured: which pods reference them, and their number.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde::Serialize;

use crate::config::Settings;
use pod_index::Reader;
use pod_index_kubelet::references::{
    ConfigMapManager, ManagerStatus, Options, SecretManager, Strategy, follow,
};

/// Both managers.
#[derive(Clone, Debug)]
pub(crate) struct ReferenceManagers {
    secrets: SecretManager,
    config_maps: ConfigMapManager,
}

/// The response of `/references`: numbers, without names.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counts {
    pub(crate) secrets: ManagerStatus,
    pub(crate) config_maps: ManagerStatus,
}

impl ReferenceManagers {
    /// Follows the objects that the indexed pods reference, if configured, in its own task.
    pub(crate) fn start(settings: &Settings, client: Option<&Client>, reader: &Reader<Pod>) -> Option<Self> {
        if !settings.references {
            return None;
        }
        let (client, options) = (client?, options());
        let secrets = SecretManager::new(client.clone(), options.clone());
        let config_maps = ConfigMapManager::new(client.clone(), options);
        let references = Self { secrets, config_maps };
        let Self { secrets, config_maps } = references.clone();
        tokio::spawn(follow(reader.changes(), move |changes| {
            secrets.apply(changes);
            config_maps.apply(changes);
        }));
        Some(references)
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts { secrets: self.secrets.status(), config_maps: self.config_maps.status() }
    }
}

/// Nothing requests an object from the agent: a watch stays open while a pod references the object. The other
/// strategies would never fetch anything.
fn options() -> Options {
    Options::default().strategy(Strategy::Watch).idle(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_watch_ends_for_lack_of_requests() {
        assert_eq!(options().idle_after(), Duration::MAX);
    }
}
