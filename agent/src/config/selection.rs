//! Which of the API server's pods are followed, with `kubectl get` semantics. Validates the selectors.
//!
//! The server rejects an invalid selector as well, but only after the agent has started. The server alone knows which
//! fields pods can be selected by.

use super::args::Shared;
use crate::api::fields::Fields;
use crate::api::labels::Labels;
use crate::config::failure::Failure;
use pod_index_kubelet::names;
use pod_index_kubelet::sources::api_server::ApiServer;

/// The selection. Empty: all pods.
#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Selection {
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
}

/// The error in the given selectors, if any.
type Check = fn(&str) -> Result<(), String>;

impl Selection {
    pub(crate) fn new(given: &Shared) -> Result<Self, Failure> {
        let (labels, fields) = (given.pod_selector.clone(), given.pod_field_selector.clone());
        Self { namespace: given.namespace.clone(), labels, fields }.checked()
    }

    fn checked(self) -> Result<Self, Failure> {
        let checks: [(&str, &Option<String>, Check); 3] = [
            ("--namespace", &self.namespace, |name| {
                names::dns_label(name).map_or(Ok(()), |why| Err(why.to_owned()))
            }),
            ("--pod-selector", &self.labels, |labels| Labels::parse(labels).map(drop)),
            ("--pod-field-selector", &self.fields, |terms| Fields::parse(terms, |_| Some(0)).map(drop)),
        ];
        for (flag, text, check) in checks {
            if let Some(text) = text {
                check(text).map_err(|why| Failure::Usage(format!("{flag} {text:?}: {why}")))?;
            }
        }
        Ok(self)
    }

    /// The selected pods of `server`.
    pub(crate) fn of(&self, mut server: ApiServer) -> ApiServer {
        let Self { namespace, labels, fields } = self.clone();
        server.fields.extend(fields);
        ApiServer { namespace, labels, ..server }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(namespace: &str, labels: &str, fields: &str) -> Option<String> {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let selection =
            Selection { namespace: given(namespace), labels: given(labels), fields: given(fields) };
        selection.checked().err().map(|failure| failure.message().unwrap_or_default().to_owned())
    }

    /// The modules of the selectors test their grammar.
    #[test]
    fn selectors_are_checked_and_an_invalid_one_is_named_by_its_flag() {
        assert_eq!(said("", "", ""), None);
        assert_eq!(said("kube-system", "app=web,tier in (a, b)", "status.phase!=Failed,a=b"), None);
        for namespace in ["Default", "a/b", "a,b", "a.b", "*"] {
            let said = said(namespace, "", "").unwrap_or_else(|| panic!("{namespace:?} was taken"));
            assert!(said.starts_with(&format!("--namespace {namespace:?}: ")), "{said}");
        }
        for (labels, fields, start) in
            [("a=b=c", "", "--pod-selector \"a=b=c\": "), ("", "a", "--pod-field-selector \"a\": ")]
        {
            let said = said("", labels, fields).unwrap();
            assert!(said.starts_with(start), "{said}");
        }
    }
}
