//! Field selectors: the grammar of apimachinery's `fields.ParseSelector`.

use std::collections::BTreeSet;

use super::resource::Resource;

/// Maximum number of terms.
const MOST: usize = 128;

/// Terms, all of which must match. Sorted, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    /// The index in [`Resource::FIELDS`].
    field: usize,
    is_equal: bool,
    value: String,
}

impl Fields {
    /// Parses a selector such as `status.phase!=Running,spec.nodeName=node-1`.
    pub(super) fn parse<R: Resource>(text: &str) -> Result<Self, String> {
        let mut terms = BTreeSet::new();
        for term in split(text).into_iter().filter(|term| !term.is_empty()) {
            terms.insert(Term::parse::<R>(term, text)?);
            if terms.len() > MOST {
                return Err(format!("at most {MOST} terms are allowed"));
            }
        }
        Ok(Self(terms.into_iter().collect()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether an object with these fields matches.
    pub(super) fn matches<'a>(&self, field: impl Fn(usize) -> &'a str) -> bool {
        self.0.iter().all(|term| (field(term.field) == term.value) == term.is_equal)
    }

    /// The value that this field has in every selected object.
    pub(super) fn necessary(&self, field: usize) -> Option<&str> {
        self.0.iter().find(|term| term.field == field && term.is_equal).map(|term| &*term.value)
    }
}

impl Term {
    fn parse<R: Resource>(term: &str, selector: &str) -> Result<Self, String> {
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
        let field = R::FIELDS.iter().position(|known| *known == name);
        let field = field.ok_or_else(|| format!("field label not supported: {name}"))?;
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
    use k8s_openapi::api::core::v1::Pod;

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
        let pod = pod();
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
            assert_eq!(
                Fields::parse::<Pod>(selector).unwrap().matches(|at| pod.field(at)),
                selected,
                "{selector:?}"
            );
        }
        let nothing = Pod::default();
        assert!(
            Fields::parse::<Pod>("spec.nodeName=,spec.hostNetwork=false,status.podIP=")
                .unwrap()
                .matches(|at| nothing.field(at))
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
            assert!(Fields::parse::<Pod>(selector).is_err(), "{selector:?}");
        }
    }
}
