//! Whether somebody else is the kubelet of the node.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::Api;
use tokio::time;

/// Where kubelets keep their leases (`NamespaceNodeLease`).
const NAMESPACE: &str = "kube-node-lease";
/// How long a lease lasts that does not say so: the kubelet's `nodeLeaseDurationSeconds`.
const DEFAULT_SECONDS: i32 = 40;
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether a kubelet holds the lease of `node`: it was renewed within the time for which it lasts.
///
/// Two that keep the mirrors of one node take each other's for wrong ones; ask this before starting to. A lease that was
/// renewed in the future, by a clock that goes ahead of this one, is held.
///
/// # Errors
/// If the API server refuses or cannot be reached. That there is no lease is no error: nobody holds it.
///
/// Kubelet: the lease that `pkg/kubelet/kubelet.go` renews every ten seconds.
pub async fn has_live_kubelet(client: &Client, node: &str) -> Result<bool, kube::Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let lease = time::timeout(PATIENCE, leases.get_opt(node)).await.map_err(|elapsed| {
        let silence = std::io::Error::new(std::io::ErrorKind::TimedOut, elapsed);
        kube::Error::Service(silence.into())
    })??;
    Ok(lease.is_some_and(|lease| is_live(&lease, SystemTime::now())))
}

fn is_live(lease: &Lease, now: SystemTime) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let Some(renewed) = &spec.renew_time else { return false };
    let seconds = spec.lease_duration_seconds.unwrap_or(DEFAULT_SECONDS);
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let ends = renewed.0.as_second().saturating_add(i64::from(seconds));
    i64::try_from(now).unwrap_or(i64::MAX) <= ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(lease: &str, now: u64) -> bool {
        let lease: Lease = serde_json::from_str(lease).expect("a lease");
        is_live(&lease, UNIX_EPOCH + Duration::from_secs(now))
    }

    #[test]
    fn a_lease_is_live_as_long_as_it_lasts() {
        let lease = r#"{"spec": {"renewTime": "1970-01-01T00:10:00.000000Z", "leaseDurationSeconds": 40}}"#;
        assert!(live(lease, 600) && live(lease, 640), "it lasts");
        assert!(!live(lease, 641), "it is over");
        assert!(live(lease, 100), "another clock goes ahead");
        let silent = r#"{"spec": {"renewTime": "1970-01-01T00:10:00.000000Z"}}"#;
        assert!(live(silent, 640) && !live(silent, 641));
    }

    #[test]
    fn a_lease_that_nobody_renewed_is_not_live() {
        assert!(!live("{}", 0));
        assert!(!live(r#"{"spec": {"leaseDurationSeconds": 40}}"#, 0));
    }
}
