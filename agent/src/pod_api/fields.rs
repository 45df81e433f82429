//! Field selectors: the grammar of apimachinery's `fields.ParseSelector`, and the pod fields that the API server
//! supports.

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

/// Terms, all of which must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: Field,
    is_equal: bool,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    NodeName,
    RestartPolicy,
    SchedulerName,
    ServiceAccountName,
    HostNetwork,
    Phase,
    PodIp,
    /// A field that the API server knows and that no pod has a value of.
    PodIps,
    NominatedNodeName,
}

impl Field {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "metadata.name" => Self::Name,
            "metadata.namespace" => Self::Namespace,
            "spec.nodeName" | "spec.host" => Self::NodeName,
            "spec.restartPolicy" => Self::RestartPolicy,
            "spec.schedulerName" => Self::SchedulerName,
            "spec.serviceAccountName" => Self::ServiceAccountName,
            "spec.hostNetwork" => Self::HostNetwork,
            "status.phase" => Self::Phase,
            "status.podIP" => Self::PodIp,
            "status.podIPs" => Self::PodIps,
            "status.nominatedNodeName" => Self::NominatedNodeName,
            _ => return None,
        })
    }

    /// The value of the field in this pod. Empty if absent.
    fn of(self, pod: &Pod) -> &str {
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let value = match self {
            Self::Name => Some(pod.name()),
            Self::Namespace => Some(pod.namespace()),
            Self::NodeName => spec.and_then(|spec| spec.node_name.as_deref()),
            Self::RestartPolicy => spec.and_then(|spec| spec.restart_policy.as_deref()),
            Self::SchedulerName => spec.and_then(|spec| spec.scheduler_name.as_deref()),
            Self::ServiceAccountName => spec.and_then(|spec| spec.service_account_name.as_deref()),
            Self::HostNetwork => {
                let is_host = spec.and_then(|spec| spec.host_network).unwrap_or_default();
                Some(if is_host { "true" } else { "false" })
            }
            Self::Phase => status.and_then(|status| status.phase.as_deref()),
            // Like the API server: the first of several.
            Self::PodIp => status.and_then(|status| {
                let first = status.pod_ips.as_ref().and_then(|ips| ips.first());
                first.map_or(status.pod_ip.as_deref(), |ip| Some(&ip.ip))
            }),
            Self::PodIps => None,
            Self::NominatedNodeName => status.and_then(|status| status.nominated_node_name.as_deref()),
        };
        value.unwrap_or_default()
    }
}

impl Fields {
    /// Parses a selector such as `status.phase!=Running,spec.nodeName=node-1`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let terms = split(text).into_iter().filter(|term| !term.is_empty());
        terms.map(|term| Term::parse(term, text)).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn matches(&self, pod: &Pod) -> bool {
        self.0.iter().all(|term| (term.field.of(pod) == term.value) == term.is_equal)
    }

    /// The name that every selected pod has.
    pub(super) fn necessary_name(&self) -> Option<&str> {
        self.necessary(Field::Name)
    }

    /// The namespace that every selected pod is in.
    pub(super) fn necessary_namespace(&self) -> Option<&str> {
        self.necessary(Field::Namespace)
    }

    fn necessary(&self, field: Field) -> Option<&str> {
        self.0.iter().find(|term| term.field == field && term.is_equal).map(|term| &*term.value)
    }
}

impl Term {
    fn parse(term: &str, selector: &str) -> Result<Self, String> {
        let Some(at) =
            term.find(['=', '!']).filter(|at| !term[*at..].starts_with('!') || term[*at..].starts_with("!="))
        else {
            return Err(format!("invalid selector: {selector:?}; can't understand {term:?}"));
        };
        let (name, rest) = term.split_at(at);
        let (value, is_equal) = if let Some(value) = rest.strip_prefix("!=") {
            (value, false)
        } else {
            (rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')).unwrap_or(rest), true)
        };
        let field = Field::named(name).ok_or_else(|| format!("field label not supported: {name}"))?;
        Ok(Self { field, is_equal, value: unescaped(value)? })
    }
}

/// Splits at commas that are not escaped with a backslash.
fn split(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut is_escaped) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Removes escapes. Backslashes, commas and equals signs must be escaped, and nothing else may be.
fn unescaped(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                Some(c) => return Err(format!("invalid escape sequence: {:?}", format!("\\{c}"))),
                None => return Err("invalid escape sequence: \"\\\"".to_owned()),
            },
            ',' | '=' => return Err(format!("invalid field selector: unescaped character in value: {c}")),
            c => plain.push(c),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "nodeName": "node-1", "restartPolicy": "Always", "schedulerName": "s", "serviceAccountName": "sa",
                      "hostNetwork": true, "containers": [] },
            "status": { "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                        "nominatedNodeName": "node-2" },
        }))
        .unwrap()
    }

    #[test]
    fn every_field_of_the_api_server_is_selectable() {
        for (selector, selected) in [
            ("", true),
            ("metadata.name=web", true),
            ("metadata.name==web", true),
            ("metadata.name!=web", false),
            ("metadata.namespace=shop,metadata.name=other", false),
            ("spec.nodeName=node-1", true),
            ("spec.host=node-1", true),
            ("spec.restartPolicy=Always", true),
            ("spec.schedulerName=s", true),
            ("spec.serviceAccountName=sa", true),
            ("spec.hostNetwork=true", true),
            ("spec.hostNetwork!=true", false),
            ("status.phase!=Running", false),
            ("status.phase!=Failed,", true),
            ("status.podIP=10.0.0.1", true),
            ("status.podIP=fd00::1", false),
            ("status.podIPs=10.0.0.1", false),
            ("status.podIPs!=10.0.0.1", true),
            ("status.nominatedNodeName=node-2", true),
            ("metadata.name=w\\,eb", false),
        ] {
            assert_eq!(Fields::parse(selector).unwrap().matches(&pod()), selected, "{selector:?}");
        }
        let nothing = Pod::default();
        assert!(
            Fields::parse("spec.nodeName=,spec.hostNetwork=false,status.podIP=").unwrap().matches(&nothing)
        );
    }

    #[test]
    fn invalid_field_selectors_and_unknown_fields_are_refused() {
        for selector in [
            "spec.image=x",
            "metadata.name",
            "=x",
            "metadata.name=a=b",
            "metadata.name=\\x",
            "metadata.name=\\",
            "metadata.labels.a=b",
            "a!b",
        ] {
            assert!(Fields::parse(selector).is_err(), "{selector:?}");
        }
    }
}
