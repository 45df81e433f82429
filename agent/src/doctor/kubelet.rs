//! Detects a kubelet on this node, and compares that with the settings.

use std::net::SocketAddr;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::Api;
use tokio::time::timeout;

use super::report::{Finding, Outcome, span};
use super::rights::{LEASES, Right};
use super::{PATIENCE, check, clock};
use crate::cli::client::Server;
use crate::config::Settings;
use crate::config::values::Management;
use crate::pipeline::api_clients::answer;

const CHECK: &str = "kubelet";

/// The duration of a lease that does not set one.
const DEFAULT_SECONDS: i32 = 40;

/// The signs of a running kubelet.
#[derive(Clone, Debug, PartialEq)]
struct Signs {
    /// The answer of `/healthz`: healthy, or the reason why not. `None` if nothing answers.
    healthz: Option<Result<(), String>>,
    /// Whether it lists its pods for the agent.
    lists: bool,
    /// Seconds since its lease was renewed, and the duration of the lease. `None` if there is no lease or it cannot be
    /// read.
    lease: Option<(f64, f64)>,
}

/// `server`: a client of the API server, and the difference of its clock.
pub(super) async fn check(
    settings: &Settings,
    server: Option<(Client, f64)>,
    address: SocketAddr,
    findings: &mut Vec<Finding>,
) {
    let lease = match server {
        Some((client, offset)) => lease(settings, &client, offset).await,
        None => None,
    };
    let pods = pods(settings).await;
    let lists = pods.as_ref().is_some_and(|pods| pods.result == Outcome::Ok);
    let signs = Signs { healthz: healthz(address).await, lists, lease };
    let has_static_pods = settings.given.static_pod_path.is_some() || settings.http.is_some();
    let needs_mirrors = has_static_pods && settings.given.has_api_server();
    findings.push(judge(&signs, address, settings.mirrors, needs_mirrors));
    findings.extend(pods);
}

/// `None` if nothing answers.
async fn healthz(address: SocketAddr) -> Option<Result<(), String>> {
    let server = Server::plain(address).ok()?;
    match timeout(PATIENCE, server.stream("/healthz", &[])).await.ok()? {
        Ok(_) => Some(Ok(())),
        Err((Some(_), failure)) => Some(Err(failure.message().unwrap_or_default().to_owned())),
        Err((None, _)) => None,
    }
}

/// Reads the lease, if the agent may.
async fn lease(settings: &Settings, client: &Client, offset: f64) -> Option<(f64, f64)> {
    if Right::lease(settings).is_granted(client).await != Ok(true) {
        return None;
    }
    let leases = Api::<Lease>::namespaced(client.clone(), LEASES);
    let lease = answer(leases.get_opt(settings.node.as_str())).await.ok()??;
    let spec = lease.spec?;
    let renewed = spec.renew_time?.0.as_microsecond();
    let lasts = spec.lease_duration_seconds.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_SECONDS);
    #[allow(clippy::cast_precision_loss, reason = "exact to a microsecond for 285 years")]
    let age = clock::now() + offset - renewed as f64 / 1e6;
    Some((age, f64::from(lasts)))
}

fn judge(signs: &Signs, address: SocketAddr, mirrors: Management, needs_mirrors: bool) -> Finding {
    let answers = match &signs.healthz {
        None if signs.lists => format!("a kubelet lists its pods, but does not answer on {address}"),
        None => format!("no kubelet answers on {address}"),
        Some(Ok(())) => format!("a kubelet answers on {address}"),
        Some(Err(why)) => format!("a kubelet is not healthy: {why}"),
    };
    let is_renewed = signs.lease.is_some_and(|(age, lasts)| age < lasts);
    let answers_or_lists = signs.healthz.is_some() || signs.lists;
    let but = if is_renewed && !answers_or_lists { ", but" } else { ";" };
    let renewal =
        signs.lease.map(|(age, _)| format!("{but} the node's lease was renewed {} ago", span(age.max(0.0))));
    let message = format!("{answers}{}", renewal.unwrap_or_default());
    let lives = answers_or_lists || is_renewed;
    match (mirrors, lives) {
        (Management::Careful, true) => Finding::failure(
            CHECK,
            format!("{message}; the agent would exit with code 4"),
            "run the agent without --manage-mirror-pods: the kubelet manages the mirror pods",
        ),
        (Management::Forced, true) => Finding::warning(
            CHECK,
            format!("{message}; it and the agent would replace each other's mirror pods"),
            "run the agent without --manage-mirror-pods, unless that is not a kubelet",
        ),
        (Management::Off, false) if needs_mirrors => Finding::warning(
            CHECK,
            format!("{message}; nothing creates mirror pods for the static pods"),
            "start the kubelet, or run the agent with --manage-mirror-pods; if the kubelet serves /healthz elsewhere, \
             name the address with --kubelet-healthz",
        ),
        _ if matches!(signs.healthz, Some(Err(_))) => {
            Finding::warning(CHECK, message, "see the kubelet's log: journalctl -u kubelet")
        }
        _ => Finding::ok(CHECK, message),
    }
}

/// Whether the kubelet lists its pods for the agent. `None` without `--kubelet`.
async fn pods(settings: &Settings) -> Option<Finding> {
    const CHECK: &str = "kubelet's pods";
    let message = match check::kubelet(settings).await {
        Err(failure) => failure.message().unwrap_or_default().to_owned(),
        Ok(status) => {
            let status = status?;
            let pods = format!("{}: {} pods", status.origin, status.pods);
            let newer = "if the kubelet is newer than pod-index, install a newer pod-index";
            match status.problems.first() {
                None => return Some(Finding::ok(CHECK, pods)),
                Some(problem) if status.seen => {
                    let message = format!("{pods}, and one that cannot be used: {problem}");
                    return Some(Finding::warning(CHECK, message, newer));
                }
                Some(problem) => problem.to_string(),
            }
        }
    };
    let fixes = [
        ("answered 403", "grant the token's user to get nodes/pods; before Kubernetes 1.33, nodes/proxy"),
        ("answered 401", "name a valid token with --kubelet-token-file"),
        ("certificate", "name the authority that signed the kubelet's certificate with --kubelet-ca"),
        ("", "check that the kubelet runs, and that the URL is the kubelet's"),
    ];
    let fix = fixes.into_iter().find_map(|(word, fix)| message.contains(word).then_some(fix));
    Some(Finding::failure(CHECK, message, fix.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_a_kubelet_or_the_agent_must_manage_the_mirror_pods() {
        let address = SocketAddr::from(([127, 0, 0, 1], 10248));
        let result = |healthz, lease, mirrors, needs| {
            judge(&Signs { healthz, lists: false, lease }, address, mirrors, needs).result
        };
        let (healthy, ill) = (Some(Ok(())), Some(Err("500".to_owned())));
        let (fresh, over) = (Some((3.0, 40.0)), Some((41.0, 40.0)));
        for (healthz, lease, lives) in [
            (None, None, false),
            (None, over, false),
            (None, fresh, true),
            (healthy.clone(), None, true),
            (healthy.clone(), over, true),
            (ill.clone(), None, true),
        ] {
            let of = |mirrors, needs| result(healthz.clone(), lease, mirrors, needs);
            let expected = |when, otherwise| if lives { when } else { otherwise };
            assert_eq!(of(Management::Careful, true), expected(Outcome::Failure, Outcome::Ok));
            assert_eq!(of(Management::Forced, true), expected(Outcome::Warning, Outcome::Ok));
            let unhealthy = if healthz == ill { Outcome::Warning } else { Outcome::Ok };
            assert_eq!(of(Management::Off, true), expected(unhealthy, Outcome::Warning));
            assert_eq!(of(Management::Off, false), unhealthy);
        }
    }
}
