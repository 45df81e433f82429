//! What is kept of a removed pod that is not kept whole: its outline, its identity alone, or the least of that.
//!
//! A late event asks for names, workload, containers, addresses and times. The first two forms have these, so they are found by the
//! pod's keys. The times of all three say what the whole pod's say, or less.
//!
//! A stranger may have written the pod. So each list has a greatest length, and each text too. A text that may be a key stays
//! whole; a longer one is cut and then is no key, neither of this pod nor of another.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    EphemeralContainer, Pod, PodCondition, PodIP, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pod_index::{
    CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION, CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION,
    ENDED_ANNOTATION,
};
use pod_index_kubelet::memory::LEFT_OUT;

/// Maximum number of labels, annotations, conditions, container statuses, and containers of each kind in an outline.
const MOST_PARTS: usize = 64;
/// The longest label, annotation, image or message in an outline, in bytes.
const LONGEST: usize = 512;

/// Maximum number of container statuses in an identity.
const MOST_STATUSES: usize = 3;
/// Maximum number of IPs in both forms. A node gives a pod one, or one of each family.
const MOST_IPS: usize = 2;
/// The longest name of an object in bytes. The merge refuses pods whose name, namespace or UID is longer.
const LONGEST_NAME: usize = 253;
/// The longest name of a container, value of a label, or UID of an owner.
const LONGEST_LABEL: usize = 63;
/// The longest word, such as a phase or a reason.
const LONGEST_WORD: usize = 32;
/// A runtime's name, `://` and 64 digits.
const LONGEST_CONTAINER_ID: usize = 96;
const LONGEST_IP: usize = 45;

/// The annotations that name the static pod of a mirror pod, by its UID.
const UID_ANNOTATIONS: [&str; 2] = [CONFIG_HASH_ANNOTATION, CONFIG_MIRROR_ANNOTATION];

/// The annotations that say what kind of pod it is, whether its IP is still its own, and whether it wants attributes.
const KEPT_ANNOTATIONS: [&str; 4] = [
    CONFIG_SEEN_ANNOTATION,
    CONFIG_SOURCE_ANNOTATION,
    ENDED_ANNOTATION,
    "opentelemetry.io/k8s-processor/ignore",
];

/// The labels from which the name of a workload follows.
const KEPT_LABELS: [&str; 2] = ["pod-template-hash", "rollouts-pod-template-hash"];

/// The condition that says whether the pod has a sandbox.
const SANDBOX: &str = "PodReadyToStartContainers";

/// What a late event asks for, and the most that people and programs look at.
pub(super) fn outline(pod: &Pod) -> Pod {
    let Pod { metadata, spec, status } = pod;
    Pod {
        metadata: outline_of_metadata(metadata),
        spec: spec.as_ref().map(outline_of_spec),
        status: status.as_ref().map(outline_of_status),
    }
}

/// What a late event asks for, of at most three containers. It takes at most 18 KiB, because everything in it is bounded.
pub(super) fn identity(pod: &Pod) -> Pod {
    let Pod { metadata, spec, status } = pod;
    Pod {
        metadata: identity_of_metadata(metadata),
        spec: spec.as_ref().map(identity_of_spec),
        status: status.as_ref().map(|status| identity_of_status(status, MOST_STATUSES)),
    }
}

/// The identity without the workload, and of one container: the pod is still found by its name, its UID and its IPs, at its times.
pub(super) fn least(pod: &Pod) -> Pod {
    let metadata = identity_of_metadata(&pod.metadata);
    Pod {
        metadata: ObjectMeta { labels: None, owner_references: None, ..metadata },
        spec: pod.spec.as_ref().map(identity_of_spec),
        status: pod.status.as_ref().map(|status| identity_of_status(status, 1)),
    }
}

fn outline_of_metadata(metadata: &ObjectMeta) -> ObjectMeta {
    let is_short = |(name, value): &(&String, &String)| name.len() + value.len() <= LONGEST;
    let ObjectMeta { labels: kept_labels, annotations: kept, .. } = identity_of_metadata(metadata);
    let annotations = metadata.annotations.iter().flatten().filter(is_short).take(MOST_PARTS);
    let mut annotations: BTreeMap<_, _> =
        annotations.map(|(name, value)| (name.clone(), value.clone())).collect();
    annotations.extend(kept.into_iter().flatten());
    annotations.insert(LEFT_OUT.to_owned(), "most, because too many large pods were removed".to_owned());
    let few = metadata
        .labels
        .as_ref()
        .filter(|labels| labels.len() <= MOST_PARTS && labels.iter().all(|label| is_short(&label)));
    ObjectMeta {
        labels: few.cloned().or(kept_labels),
        annotations: Some(annotations),
        ..identity_of_metadata(metadata)
    }
}

fn identity_of_metadata(metadata: &ObjectMeta) -> ObjectMeta {
    let mut annotations = chosen(metadata.annotations.as_ref(), &KEPT_ANNOTATIONS, LONGEST_LABEL);
    annotations.extend(chosen(metadata.annotations.as_ref(), &UID_ANNOTATIONS, LONGEST_NAME));
    let left_out = "all but its identity, because too many large pods were removed";
    annotations.insert(LEFT_OUT.to_owned(), left_out.to_owned());
    let labels = chosen(metadata.labels.as_ref(), &KEPT_LABELS, LONGEST_LABEL);
    let owners = metadata.owner_references.iter().flatten();
    let controller = owners.filter(|owner| owner.controller == Some(true)).take(1);
    ObjectMeta {
        name: cut_one(metadata.name.as_ref(), LONGEST_NAME),
        namespace: cut_one(metadata.namespace.as_ref(), LONGEST_NAME),
        // Whole, because the pod is replaced and removed by it.
        uid: metadata.uid.clone(),
        resource_version: cut_one(metadata.resource_version.as_ref(), LONGEST_WORD),
        creation_timestamp: metadata.creation_timestamp.clone(),
        deletion_timestamp: metadata.deletion_timestamp.clone(),
        labels: (!labels.is_empty()).then_some(labels),
        annotations: Some(annotations),
        owner_references: Some(controller.map(identity_of_owner).collect()),
        ..ObjectMeta::default()
    }
}

/// The entries of these names.
fn chosen(
    all: Option<&BTreeMap<String, String>>,
    names: &[&str],
    longest: usize,
) -> BTreeMap<String, String> {
    let entry = |name: &&str| Some(((*name).to_owned(), cut(all?.get(*name)?, longest)));
    names.iter().filter_map(entry).collect()
}

fn identity_of_owner(owner: &OwnerReference) -> OwnerReference {
    OwnerReference {
        api_version: cut(&owner.api_version, LONGEST_LABEL),
        block_owner_deletion: owner.block_owner_deletion,
        controller: owner.controller,
        kind: cut(&owner.kind, LONGEST_LABEL),
        name: cut(&owner.name, LONGEST_NAME),
        uid: cut(&owner.uid, LONGEST_LABEL),
    }
}

fn outline_of_spec(spec: &PodSpec) -> PodSpec {
    let outline = |container: &Container| Container {
        name: cut(&container.name, LONGEST_LABEL),
        image: short(container.image.as_ref()),
        restart_policy: cut_one(container.restart_policy.as_ref(), LONGEST_WORD),
        ..Container::default()
    };
    let ephemeral = |container: &EphemeralContainer| EphemeralContainer {
        name: cut(&container.name, LONGEST_LABEL),
        image: short(container.image.as_ref()),
        ..EphemeralContainer::default()
    };
    let initial = spec.init_containers.as_ref();
    let debuggers = spec.ephemeral_containers.as_ref();
    PodSpec {
        containers: spec.containers.iter().take(MOST_PARTS).map(outline).collect(),
        init_containers: initial.map(|all| all.iter().take(MOST_PARTS).map(outline).collect()),
        ephemeral_containers: debuggers.map(|all| all.iter().take(MOST_PARTS).map(ephemeral).collect()),
        ..identity_of_spec(spec)
    }
}

fn identity_of_spec(spec: &PodSpec) -> PodSpec {
    // With a policy of a container's own, the pod's says nothing of how many sandboxes there were.
    let decides = spec.containers.iter().all(|container| container.restart_policy.is_none());
    let restart_policy = spec.restart_policy.as_ref().filter(|_| decides);
    PodSpec {
        node_name: cut_one(spec.node_name.as_ref(), LONGEST_NAME),
        host_network: spec.host_network,
        restart_policy: cut_one(restart_policy, LONGEST_WORD),
        ..PodSpec::default()
    }
}

fn outline_of_status(status: &PodStatus) -> PodStatus {
    let statuses = Statuses::of(status, MOST_PARTS, outline_of_container);
    let mut conditions: Vec<_> = status.conditions.iter().flatten().collect();
    conditions.sort_by_key(|condition| condition.type_ != SANDBOX);
    let outline = |condition: &PodCondition| PodCondition {
        message: short(condition.message.as_ref()),
        last_probe_time: condition.last_probe_time.clone(),
        last_transition_time: condition.last_transition_time.clone(),
        reason: short(condition.reason.as_ref()),
        ..identity_of_condition(condition)
    };
    PodStatus {
        conditions: Some(conditions.into_iter().take(MOST_PARTS).map(outline).collect()),
        container_statuses: statuses.containers,
        init_container_statuses: statuses.initial,
        ephemeral_container_statuses: statuses.debuggers,
        ..identity_of_status(status, 0)
    }
}

/// With at most so many statuses of containers.
fn identity_of_status(status: &PodStatus, most: usize) -> PodStatus {
    let statuses = Statuses::of(status, most, identity_of_container);
    let ip = |ip: &PodIP| PodIP { ip: cut(&ip.ip, LONGEST_IP) };
    let mut conditions = status.conditions.iter().flatten();
    let sandbox = conditions.find(|condition| condition.type_ == SANDBOX);
    PodStatus {
        phase: cut_one(status.phase.as_ref(), LONGEST_WORD),
        pod_ip: cut_one(status.pod_ip.as_ref(), LONGEST_IP),
        pod_ips: status.pod_ips.as_ref().map(|all| all.iter().take(MOST_IPS).map(ip).collect()),
        host_ip: cut_one(status.host_ip.as_ref(), LONGEST_IP),
        start_time: status.start_time.clone(),
        conditions: sandbox.map(|sandbox| vec![identity_of_condition(sandbox)]),
        container_statuses: statuses.containers,
        init_container_statuses: statuses.initial,
        ephemeral_container_statuses: statuses.debuggers,
        ..PodStatus::default()
    }
}

fn identity_of_condition(condition: &PodCondition) -> PodCondition {
    PodCondition {
        type_: cut(&condition.type_, LONGEST_NAME),
        status: cut(&condition.status, LONGEST_WORD),
        ..PodCondition::default()
    }
}

/// The statuses of a pod's containers, by their kind.
struct Statuses {
    containers: Option<Vec<ContainerStatus>>,
    initial: Option<Vec<ContainerStatus>>,
    debuggers: Option<Vec<ContainerStatus>>,
}

impl Statuses {
    /// At most so many, of all kinds together. From those that run, and those that have ended, follows what is known of the
    /// pod's times; so these come first.
    fn of(status: &PodStatus, most: usize, shorten: fn(&ContainerStatus) -> ContainerStatus) -> Self {
        let PodStatus { container_statuses, init_container_statuses, ephemeral_container_statuses, .. } =
            status;
        let lists = [container_statuses, init_container_statuses, ephemeral_container_statuses];
        let mut all: Vec<&ContainerStatus> = lists.into_iter().flatten().flatten().collect();
        all.sort_by_key(|status| Telling::of(status));
        all.truncate(most);
        let kept = |list: &Option<Vec<ContainerStatus>>| -> Option<Vec<ContainerStatus>> {
            let is_kept = |status: &&ContainerStatus| all.iter().any(|kept| std::ptr::eq(*kept, *status));
            Some(list.as_ref()?.iter().filter(is_kept).map(shorten).collect())
        };
        Self {
            containers: kept(container_statuses),
            initial: kept(init_container_statuses),
            debuggers: kept(ephemeral_container_statuses),
        }
    }
}

/// What a container's status tells of the times of its pod, the most telling one first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Telling {
    Runs,
    HasEnded,
    HasNotRun,
}

impl Telling {
    fn of(status: &ContainerStatus) -> Self {
        let runs = |state: &ContainerState| state.running.is_some();
        let has_ended = |state: &ContainerState| state.terminated.is_some();
        if status.state.as_ref().is_some_and(runs) {
            Self::Runs
        } else if [&status.state, &status.last_state].into_iter().flatten().any(has_ended) {
            Self::HasEnded
        } else {
            Self::HasNotRun
        }
    }
}

fn outline_of_container(status: &ContainerStatus) -> ContainerStatus {
    let if_short = |text: &String| short(Some(text)).unwrap_or_default();
    ContainerStatus {
        image: if_short(&status.image),
        image_id: if_short(&status.image_id),
        state: status.state.as_ref().map(|state| shortened_state(state, LONGEST)),
        last_state: status.last_state.as_ref().map(|state| shortened_state(state, LONGEST)),
        ..identity_of_container(status)
    }
}

fn identity_of_container(status: &ContainerStatus) -> ContainerStatus {
    ContainerStatus {
        name: cut(&status.name, LONGEST_LABEL),
        container_id: cut_one(status.container_id.as_ref(), LONGEST_CONTAINER_ID),
        state: status.state.as_ref().map(|state| shortened_state(state, 0)),
        last_state: status.last_state.as_ref().map(|state| shortened_state(state, 0)),
        ready: status.ready,
        restart_count: status.restart_count,
        ..ContainerStatus::default()
    }
}

/// Without messages that are longer than this.
fn shortened_state(state: &ContainerState, longest_message: usize) -> ContainerState {
    let message =
        |message: &Option<String>| message.clone().filter(|message| message.len() <= longest_message);
    let ContainerState { running, terminated, waiting } = state;
    ContainerState {
        running: running.clone(),
        terminated: terminated.as_ref().map(|ended| ContainerStateTerminated {
            container_id: cut_one(ended.container_id.as_ref(), LONGEST_CONTAINER_ID),
            exit_code: ended.exit_code,
            finished_at: ended.finished_at.clone(),
            message: message(&ended.message),
            reason: cut_one(ended.reason.as_ref(), LONGEST_WORD),
            signal: ended.signal,
            started_at: ended.started_at.clone(),
        }),
        waiting: waiting.as_ref().map(|waiting| ContainerStateWaiting {
            message: message(&waiting.message),
            reason: cut_one(waiting.reason.as_ref(), LONGEST_WORD),
        }),
    }
}

/// The text, unless it is too long for an outline.
fn short(text: Option<&String>) -> Option<String> {
    text.filter(|text| text.len() <= LONGEST).cloned()
}

fn cut_one(text: Option<&String>, most: usize) -> Option<String> {
    text.map(|text| cut(text, most))
}

/// The text, of which at most so many bytes are kept. A text that was cut ends in `…`, which no key has.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    format!("{}…", &text[..end])
}
