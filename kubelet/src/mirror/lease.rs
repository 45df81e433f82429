//! Detects another kubelet on the node.
//!
//! A kubelet renews a lease every few seconds. Its timestamps come from another clock, and either clock may
//! be wrong by any amount. So clocks are never compared: a lease is live if it is seen to change, whatever
//! its timestamps, and expired if it does not change for its duration.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::Api;

use super::kube::patiently;

/// Namespace of the kubelets' leases (`NamespaceNodeLease`).
const NAMESPACE: &str = "kube-node-lease";
/// Duration of a lease that has none: the kubelet's `nodeLeaseDurationSeconds`.
const DEFAULT_SECONDS: i32 = 40;
/// Number of looks per lease duration: two for each renewal by a kubelet (`nodeLeaseRenewIntervalFraction`).
const LOOKS: u32 = 8;
/// Longest pause between two looks, however long the lease lasts.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Checks repeatedly whether a kubelet runs on a node.
///
/// If two agents manage the mirrors of one node, each deletes the other's. Look until the answer is
/// [`Absent`](Kubelet::Absent) before you manage mirrors, and repeat the check while you manage them.
///
/// Kubelet: the lease that `pkg/kubelet/kubelet.go` renews every ten seconds; it is judged as in client-go's leader election
/// (`tools/leaderelection`).
#[derive(Debug)]
pub struct KubeletWatch {
    leases: Api<Lease>,
    node: String,
    seen: Option<Renewal>,
    /// Whether the last look failed because the API server did not answer.
    is_blind: bool,
}

/// The last renewal of the lease that was seen.
#[derive(Debug)]
struct Renewal {
    /// As the lease says. `None`: there is no lease, or it was never renewed.
    time: Option<MicroTime>,
    /// When it was first seen, by this program's clock.
    since: Instant,
}

/// Whether a kubelet runs on a node.
#[derive(Clone, PartialEq, Debug)]
pub enum Kubelet {
    /// There is no lease, or it was not renewed for its duration.
    Absent,
    /// There is a lease. Look again after this time to see whether it is renewed.
    Unclear(Duration),
    /// The lease was renewed since the last look.
    Live(Box<Lease>),
}

impl KubeletWatch {
    /// Watches for the kubelet of `node`.
    #[must_use]
    pub fn new(client: Client, node: &str) -> Self {
        let leases = Api::namespaced(client, NAMESPACE);
        Self { leases, node: node.to_owned(), seen: None, is_blind: false }
    }

    /// Looks once.
    ///
    /// # Errors
    /// If the API server refuses or cannot be reached.
    pub async fn look(&mut self) -> Result<Kubelet, kube::Error> {
        let asked = Instant::now();
        let answer = patiently(self.leases.get_opt(&self.node)).await;
        self.is_blind |= answer.is_err();
        Ok(self.judge(answer?, asked, Instant::now()))
    }

    /// Judges a lease that was read between `asked` and `answered`.
    fn judge(&mut self, lease: Option<Lease>, asked: Instant, answered: Instant) -> Kubelet {
        // While the API server does not answer, no kubelet can renew its lease: missing renewals prove nothing.
        if std::mem::take(&mut self.is_blind)
            && let Some(seen) = &mut self.seen
        {
            seen.since = answered;
        }
        let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let renewed = spec.and_then(|spec| spec.renew_time.clone());
        let lasts = spec.map_or(Duration::ZERO, lasts);
        let is_renewed = renewed.is_some();
        let since = match &self.seen {
            Some(before) if before.time == renewed => before.since,
            before => {
                let is_first = before.is_none();
                self.seen = Some(Renewal { time: renewed, since: answered });
                match lease {
                    Some(lease) if is_renewed && !is_first => return Kubelet::Live(Box::new(lease)),
                    _ => answered,
                }
            }
        };
        match lasts.checked_sub(asked.saturating_duration_since(since)) {
            Some(left) if is_renewed && !left.is_zero() => {
                Kubelet::Unclear(left.min(lasts / LOOKS).min(LONGEST_PAUSE))
            }
            _ => Kubelet::Absent,
        }
    }
}

fn lasts(spec: &LeaseSpec) -> Duration {
    // The API server accepts only positive numbers.
    let seconds = spec.lease_duration_seconds.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_SECONDS);
    Duration::from_secs(u64::from(seconds.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A watch without a network.
    fn watch() -> KubeletWatch {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        KubeletWatch::new(Client::try_from(nowhere).expect("a client"), "n1")
    }

    #[allow(clippy::unnecessary_wraps, reason = "as the server answers")]
    fn lease(renewed: &str) -> Option<Lease> {
        let lease = format!(r#"{{"spec": {{"renewTime": "{renewed}", "leaseDurationSeconds": 40}}}}"#);
        Some(serde_json::from_str(&lease).expect("a lease"))
    }

    /// Timestamps of different clocks.
    const TIMES: [&str; 3] =
        ["1970-01-01T00:10:00.000000Z", "2026-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"];

    /// Judges leases, each read this many seconds after the first.
    fn judge() -> impl FnMut(Option<Lease>, u32) -> Kubelet {
        let (mut watch, start) = (watch(), Instant::now());
        move |lease, after| watch.judge(lease, start + after * SECOND, start + after * SECOND)
    }

    #[tokio::test]
    async fn a_renewed_lease_is_live_whatever_its_timestamps() {
        for before in TIMES {
            for after in TIMES.into_iter().filter(|after| *after != before) {
                let mut judge = judge();
                assert_eq!(judge(lease(before), 0), Kubelet::Unclear(5 * SECOND), "{before}");
                assert!(matches!(judge(lease(after), 5), Kubelet::Live(_)), "{before}, then {after}");
            }
        }
    }

    #[tokio::test]
    async fn a_silent_server_does_not_let_a_lease_expire() {
        let (mut watch, start) = (watch(), Instant::now());
        let mut judge = |is_blind, after: u32| {
            let then = start + after * SECOND;
            watch.is_blind = is_blind;
            watch.judge(lease(TIMES[0]), then, then)
        };
        assert_eq!(judge(false, 0), Kubelet::Unclear(5 * SECOND));
        assert_eq!(judge(true, 60), Kubelet::Unclear(5 * SECOND), "from now on it counts");
        assert_eq!(judge(false, 99), Kubelet::Unclear(SECOND));
        assert_eq!(judge(false, 100), Kubelet::Absent);
    }

    #[tokio::test]
    async fn a_lease_not_renewed_expires_after_its_duration_even_with_a_future_timestamp() {
        for [renewed, later] in [[TIMES[0], TIMES[1]], [TIMES[2], TIMES[1]]] {
            let mut judge = judge();
            assert_eq!(judge(lease(renewed), 0), Kubelet::Unclear(5 * SECOND));
            assert_eq!(judge(lease(renewed), 37), Kubelet::Unclear(3 * SECOND));
            assert_eq!(judge(lease(renewed), 40), Kubelet::Absent);
            assert!(matches!(judge(lease(later), 90), Kubelet::Live(_)), "a kubelet came");
        }
        let silent = r#"{"spec": {"renewTime": "1970-01-01T00:10:00.000000Z"}}"#;
        let silent: Option<Lease> = serde_json::from_str(silent).expect("a lease");
        let mut judge = judge();
        for second in [0, 39] {
            let judged = judge(silent.clone(), second);
            assert!(matches!(judged, Kubelet::Unclear(_)), "it does not say how long");
        }
        assert_eq!(judge(silent, 40), Kubelet::Absent);
    }

    #[tokio::test]
    async fn without_a_renewal_there_is_no_kubelet_until_the_first_one() {
        let unused: Option<Lease> = Some(serde_json::from_str("{}").expect("a lease"));
        for lease_before in [None, unused] {
            let mut judge = judge();
            assert_eq!(judge(lease_before.clone(), 0), Kubelet::Absent);
            assert_eq!(judge(lease_before, 0), Kubelet::Absent);
            assert!(matches!(judge(lease(TIMES[0]), 0), Kubelet::Live(_)));
        }
    }
}
