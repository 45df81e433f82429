//! A pod as printed by `kubectl get pods`. Columns and cells follow the API server's printer.

use k8s_openapi::api::core::v1::{
    ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use pod_index::PodMeta;

/// The columns that every resource has.
pub(super) const NAME: (&str, u8) = ("Name", 0);
pub(super) const AGE: (&str, u8) = ("Age", 0);

/// Name and priority of each column. Priorities above 0 are for `-o wide`.
#[rustfmt::skip]
pub(crate) const COLUMNS: [(&str, u8); 9] = [
    NAME, ("Ready", 0), ("Status", 0), ("Restarts", 0), AGE, ("IP", 1), ("Node", 1), ("Nominated Node", 1),
    ("Readiness Gates", 1),
];

/// The cells, in the order of [`COLUMNS`].
pub(crate) fn cells(pod: &Pod, now: Timestamp) -> [String; COLUMNS.len()] {
    let no_spec = PodSpec::default();
    let no_status = PodStatus::default();
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let status = pod.status.as_ref().unwrap_or(&no_status);
    let Containers { reason, ready, restarts } = containers(pod, spec, status);
    let restarts = match restarts {
        Restarts { count, last: Some(last) } if count != 0 => {
            format!("{count} ({} ago)", since(Some(&last), now))
        }
        Restarts { count, .. } => count.to_string(),
    };
    let ip = status.pod_ips.as_ref().and_then(|ips| ips.first()).map(|ip| &*ip.ip);
    let or_none = |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or("<none>").to_owned();
    [
        pod.name().to_owned(),
        ready,
        reason,
        restarts,
        since(pod.metadata.creation_timestamp.as_ref(), now),
        or_none(ip.or(status.pod_ip.as_deref())),
        or_none(spec.node_name.as_deref()),
        or_none(status.nominated_node_name.as_deref()),
        readiness_gates(spec, status),
    ]
}

/// How many readiness gates are true, of how many.
fn readiness_gates(spec: &PodSpec, status: &PodStatus) -> String {
    let gates = spec.readiness_gates.as_deref().unwrap_or_default();
    let passed = gates.iter().filter(|gate| is_true(status, &gate.condition_type)).count();
    if gates.is_empty() { "<none>".to_owned() } else { format!("{passed}/{}", gates.len()) }
}

/// Restarts of containers.
#[derive(Default)]
struct Restarts {
    count: i32,
    last: Option<Time>,
}

/// The cells that depend on a pod's containers.
struct Containers {
    reason: String,
    ready: String,
    restarts: Restarts,
}

/// The API server's `printPod`, branch by branch and in one piece, so that it can be compared with the original.
fn containers(pod: &Pod, spec: &PodSpec, status: &PodStatus) -> Containers {
    let phase = status.phase.as_deref().unwrap_or_default();
    let mut reason =
        status.reason.clone().filter(|reason| !reason.is_empty()).unwrap_or_else(|| phase.to_owned());
    let scheduled = condition(status, "PodScheduled").and_then(|scheduled| scheduled.reason.as_deref());
    if scheduled == Some("SchedulingGated") {
        "SchedulingGated".clone_into(&mut reason);
    }
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let is_sidecar = |name: &str| {
        init.iter()
            .any(|container| container.name == name && container.restart_policy.as_deref() == Some("Always"))
    };
    let sidecars = init.iter().filter(|container| is_sidecar(&container.name)).count();
    let total = spec.containers.len() + sidecars;
    let mut ready = 0;
    let mut initializing = false;
    let mut restarts = Restarts::default();
    let mut of_sidecars = Restarts::default();
    for (at, container) in status.init_container_statuses.iter().flatten().enumerate() {
        add(&mut restarts, container);
        let is_sidecar = is_sidecar(&container.name);
        if is_sidecar {
            add(&mut of_sidecars, container);
        }
        let terminated = terminated(container);
        if terminated.is_some_and(|terminated| terminated.exit_code == 0) {
            continue;
        }
        if is_sidecar && container.started == Some(true) {
            ready += usize::from(container.ready);
            continue;
        }
        let waiting = waiting(container).filter(|reason| *reason != "PodInitializing");
        reason = match (terminated, waiting) {
            (Some(terminated), _) => format!("Init:{}", ended(terminated)),
            (None, Some(waiting)) => format!("Init:{waiting}"),
            (None, None) => format!("Init:{at}/{}", init.len()),
        };
        initializing = true;
        break;
    }
    if !initializing || is_true(status, "Initialized") {
        restarts = of_sidecars;
        let mut has_running = false;
        for container in status.container_statuses.iter().flatten().rev() {
            add(&mut restarts, container);
            if let Some(waiting) = waiting(container) {
                waiting.clone_into(&mut reason);
            } else if let Some(terminated) = terminated(container) {
                reason = ended(terminated);
            } else if container.ready && container.state.as_ref().is_some_and(|state| state.running.is_some())
            {
                has_running = true;
                ready += 1;
            }
        }
        if reason == "Completed" && has_running {
            (if is_true(status, "Ready") { "Running" } else { "NotReady" }).clone_into(&mut reason);
        }
    }
    if pod.metadata.deletion_timestamp.is_some() {
        if status.reason.as_deref() == Some("NodeLost") {
            "Unknown".clone_into(&mut reason);
        } else if !matches!(phase, "Failed" | "Succeeded") {
            "Terminating".clone_into(&mut reason);
        }
    }
    Containers { reason, ready: format!("{ready}/{total}"), restarts }
}

fn add(restarts: &mut Restarts, container: &ContainerStatus) {
    restarts.count = restarts.count.saturating_add(container.restart_count);
    let ended =
        container.last_state.as_ref().and_then(|state| state.terminated.as_ref()?.finished_at.as_ref());
    restarts.last = ended.max(restarts.last.as_ref()).cloned();
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

fn is_true(status: &PodStatus, kind: &str) -> bool {
    condition(status, kind).is_some_and(|condition| condition.status == "True")
}

fn waiting(container: &ContainerStatus) -> Option<&str> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    waiting.reason.as_deref().filter(|reason| !reason.is_empty())
}

fn terminated(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

/// The reason why a container ended.
fn ended(terminated: &ContainerStateTerminated) -> String {
    match (terminated.reason.as_deref(), terminated.signal) {
        (Some(reason), _) if !reason.is_empty() => reason.to_owned(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", terminated.exit_code),
    }
}

/// The age, as in `duration.HumanDuration`.
pub(crate) fn since(time: Option<&Time>, now: Timestamp) -> String {
    let Some(Time(time)) = time else { return "<unknown>".to_owned() };
    human(now.as_second().saturating_sub(time.as_second()))
}

fn human(seconds: i64) -> String {
    let with = |large: i64, unit: char, small: i64, rest: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{rest}"),
    };
    let minutes = seconds / 60;
    let hours = seconds / 3600;
    let days = hours / 24;
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => with(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => with(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => with(days, 'd', hours % 24, 'h'),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => with(days / 365, 'y', days % 365, 'd'),
        () => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn ages_are_formatted_as_in_kubectl() {
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (8 * 3600 + 60, "8h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86_400 + 3600, "8d"),
            (2 * 365 * 86_400, "2y"),
            ((2 * 365 + 3) * 86_400, "2y3d"),
            (9 * 365 * 86_400, "9y"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }

    /// The cells of a pod with two containers, of which one is a sidecar if the status has init containers.
    fn row(status: &Value, deleted: Option<&str>) -> [String; 9] {
        let mut pod = json!({
            "metadata": { "name": "web", "creationTimestamp": "2026-01-01T23:00:00Z", "deletionTimestamp": deleted },
            "spec": { "containers": [{ "name": "a" }, { "name": "b" }], "nodeName": "node-1" },
            "status": status,
        });
        if status.get("initContainerStatuses").is_some() {
            pod["spec"]["containers"] = json!([{ "name": "a" }]);
            pod["spec"]["initContainers"] =
                json!([{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }]);
        }
        cells(&serde_json::from_value(pod).unwrap(), "2026-01-02T00:00:00Z".parse().unwrap())
    }

    /// The status of a container that is not ready, in this state.
    fn container(name: &str, state: &Value) -> Value {
        json!({ "name": name, "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": state })
    }

    fn ended(name: &str, terminated: &Value) -> Value {
        container(name, &json!({ "terminated": terminated }))
    }

    #[test]
    fn the_nominated_node_and_the_readiness_gates_are_printed_as_by_the_api_server() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "web" },
            "spec": {
                "containers": [],
                "readinessGates": [{ "conditionType": "a" }, { "conditionType": "b" }, { "conditionType": "c" }],
            },
            "status": {
                "nominatedNodeName": "node-2",
                "conditions": [{ "type": "a", "status": "True" }, { "type": "b", "status": "False" }],
            },
        }))
        .unwrap();
        assert_eq!(cells(&pod, Timestamp::UNIX_EPOCH)[5..], ["<none>", "<none>", "node-2", "1/3"]);
    }

    #[test]
    fn each_state_of_a_pod_is_printed_as_by_the_api_server() {
        let up = |name: &str| {
            let mut up = container(name, &json!({ "running": {} }));
            up["ready"] = true.into();
            up
        };
        let mut crashing = container("a", &json!({ "waiting": { "reason": "CrashLoopBackOff" } }));
        crashing["restartCount"] = 3.into();
        crashing["lastState"] =
            json!({ "terminated": { "exitCode": 1, "finishedAt": "2026-01-01T23:58:00Z" } });
        let mut sidecar = up("s");
        (sidecar["started"], sidecar["restartCount"]) = (true.into(), 2.into());
        let gated = json!([{ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" }]);
        let containers = |phase: &str, all: &[Value]| json!({ "phase": phase, "containerStatuses": all });
        let init = |of: &Value| json!({ "phase": "Pending", "initContainerStatuses": [of] });
        let both = json!({
            "phase": "Running", "containerStatuses": [up("a")],
            "initContainerStatuses": [ended("i", &json!({ "exitCode": 0 })), sidecar],
        });
        let completed = ended("a", &json!({ "exitCode": 0, "reason": "Completed" }));
        let killed = ended("a", &json!({ "exitCode": 137, "signal": 9 }));
        for (status, ready, reason, restarts) in [
            (json!({ "phase": "Pending" }), "0/2", "Pending", "0"),
            (containers("Running", &[up("a"), up("b")]), "2/2", "Running", "0"),
            (json!({ "phase": "Failed", "reason": "Evicted" }), "0/2", "Evicted", "0"),
            (json!({ "phase": "Pending", "conditions": gated }), "0/2", "SchedulingGated", "0"),
            (containers("Running", &[crashing, up("b")]), "1/2", "CrashLoopBackOff", "3 (2m ago)"),
            (containers("Running", &[completed, up("b")]), "1/2", "NotReady", "0"),
            (containers("Failed", &[killed]), "0/2", "Signal:9", "0"),
            (containers("Failed", &[ended("a", &json!({ "exitCode": 3 }))]), "0/2", "ExitCode:3", "0"),
            (init(&container("i", &json!({ "running": {} }))), "0/2", "Init:0/2", "0"),
            (init(&ended("i", &json!({ "exitCode": 2 }))), "0/2", "Init:ExitCode:2", "0"),
            (both, "2/2", "Running", "2"),
        ] {
            let cells = row(&status, None);
            assert_eq!((&*cells[1], &*cells[2], &*cells[3]), (ready, reason, restarts), "{status}");
            assert_eq!(cells[4], "60m");
        }
        let status = json!({ "phase": "Running", "podIPs": [{ "ip": "10.0.0.1" }] });
        let cells = row(&status, Some("2026-01-02T00:00:00Z"));
        assert_eq!(&cells[2], "Terminating");
        assert_eq!(cells[5..], ["10.0.0.1", "node-1", "<none>", "<none>"]);
    }
}
