//! Field selectors: `f=v`, `f==v` and `f!=v`, joined by commas; `\` before `\`, `,` or `=` in a value.

use serde_json::Value;

use crate::api_server::store::text;

/// Selectable fields of pods.
const POD_FIELDS: [&str; 12] = [
    "metadata.name",
    "metadata.namespace",
    "spec.host",
    "spec.hostNetwork",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
    // Known, and no pod has a value of it.
    "status.podIPs",
];

/// Selectable fields of Nodes and of Namespaces, which have no namespace.
const NODE_FIELDS: [&str; 2] = ["metadata.name", "spec.unschedulable"];
const NAMESPACE_FIELDS: [&str; 2] = ["metadata.name", "status.phase"];

/// Selectable fields of all other objects.
const FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// One term.
#[derive(Clone, Debug)]
pub(super) struct Term {
    field: String,
    pub(super) equal: bool,
    pub(super) value: String,
}

impl Term {
    pub(super) fn holds(&self, object: &Value) -> bool {
        (field(object, &self.field) == self.value) == self.equal
    }

    /// Whether the term demands a value of this field.
    pub(super) fn fixes(&self, field: &str) -> bool {
        self.equal && self.field == field
    }
}

fn field<'v>(value: &'v Value, key: &str) -> &'v str {
    match key {
        "spec.hostNetwork" if value.pointer("/spec/hostNetwork") == Some(&Value::Bool(true)) => "true",
        "spec.unschedulable" if value.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) => "true",
        "spec.hostNetwork" | "spec.unschedulable" => "false",
        key => text(value, &format!("/{}", key.replace('.', "/"))),
    }
}

/// The terms, or why the server refuses the selector.
pub(super) fn parse(resource: &str, selector: &str) -> Result<Vec<Term>, String> {
    let known = match resource {
        "pods" => &POD_FIELDS[..],
        "nodes" => &NODE_FIELDS,
        "namespaces" => &NAMESPACE_FIELDS,
        _ => &FIELDS,
    };
    let mut terms = Vec::new();
    for part in split(selector).into_iter().filter(|part| !part.is_empty()) {
        let at =
            part.find(['=', '!']).filter(|at| part[*at..].starts_with('=') || part[*at..].starts_with("!="));
        let Some(at) = at else {
            return Err(format!("invalid selector: '{selector}'; can't understand '{part}'"));
        };
        let (name, rest) = part.split_at(at);
        if !known.contains(&name) {
            return Err(format!("field label not supported: {name}"));
        }
        let equal = !rest.starts_with('!');
        let value = ["!=", "==", "="].iter().find_map(|operator| rest.strip_prefix(operator)).unwrap();
        let field = if name == "spec.host" { "spec.nodeName" } else { name }.to_owned();
        terms.push(Term { field, equal, value: unescaped(value)? });
    }
    Ok(terms)
}

/// Splits at each comma that no `\` precedes.
fn split(selector: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, byte) in selector.bytes().enumerate() {
        if byte == b',' && !escaped {
            parts.push(&selector[start..at]);
            start = at + 1;
        }
        escaped = byte == b'\\' && !escaped;
    }
    parts.push(&selector[start..]);
    parts
}

fn unescaped(value: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{}",
                        other.unwrap_or(' ')
                    ));
                }
            },
            '=' => return Err("invalid field selector: unescaped character in value: =".to_owned()),
            letter => plain.push(letter),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn terms_select_by_the_fields_of_pods_and_others_are_refused() {
        let pod = json!({ "metadata": { "name": "one" }, "spec": { "nodeName": "n1" }, "status": { "phase": "Running", "podIPs": [{ "ip": "10.0.0.1" }] } });
        let selects = |selector: &str| parse("pods", selector).unwrap().iter().all(|term| term.holds(&pod));
        let holding = r";spec.nodeName=n1;spec.host==n1;spec.nodeName!=n2,metadata.name=one;spec.hostNetwork=false;,,status.phase!=Failed;status.podIP=,status.podIPs=;metadata.name!=a\,b";
        for holds in holding.split(';') {
            assert!(selects(holds), "{holds}");
        }
        for fails in ["spec.nodeName=n2", "spec.nodeName!=n1", "metadata.name=one,status.phase=Failed"] {
            assert!(!selects(fails), "{fails}");
        }
        let refused =
            r"spec.image=i;spec.nodeName;spec.nodeName!;spec.nodeName=a=b;spec.nodeName=\a;!spec.nodeName";
        for bad in refused.split(';') {
            assert!(parse("pods", bad).is_err(), "{bad}");
        }
        assert!(parse("secrets", "spec.nodeName=n1").is_err());
    }
}
