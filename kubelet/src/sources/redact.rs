//! Removes literal values of environment variables, which are often credentials, before a pod is stored.

use k8s_openapi::api::core::v1::{EnvVar, Pod};

/// Replaces a value.
const REDACTED: &str = "[redacted]";

/// The manifest as last sent by `kubectl apply`, including values.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Replaces the literal value of every environment variable by `[redacted]`. Also removes the annotation in
/// which `kubectl apply` keeps the same values. References (`valueFrom`) and empty values stay.
///
/// Commands, arguments and other annotations may hold credentials too; they stay.
///
/// # Complexity
/// Linear in the number of variables.
///
/// # Examples
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use pod_index_kubelet::sources::redact_env;
///
/// let mut pod: Pod = serde_json::from_str(
///     r#"{"spec": {"containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": "hunter2"}]}]}}"#,
/// )?;
/// redact_env(&mut pod);
/// let env = pod.spec.unwrap().containers[0].env.take().unwrap();
/// assert_eq!(env[0].value.as_deref(), Some("[redacted]"));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn redact_env(pod: &mut Pod) {
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
    let Some(spec) = &mut pod.spec else { return };
    spec.containers.iter_mut().for_each(|container| redact(container.env.as_mut()));
    spec.init_containers.iter_mut().flatten().for_each(|container| redact(container.env.as_mut()));
    spec.ephemeral_containers.iter_mut().flatten().for_each(|container| redact(container.env.as_mut()));
}

fn redact(env: Option<&mut Vec<EnvVar>>) {
    let values = env.into_iter().flatten().filter_map(|variable| variable.value.as_mut());
    values.filter(|value| !value.is_empty()).for_each(|value| REDACTED.clone_into(value));
}
