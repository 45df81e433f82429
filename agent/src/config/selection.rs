//! Checks the selectors of the API server's pods.
//!
//! The server rejects an invalid selector as well, but only after the agent has started. The server alone knows which
//! fields pods can be selected by.

use super::subjects::ApiServerSource;
use super::written::Written;
use crate::api::selectors::Selector;
use crate::config::failure::Failure;
use pod_index_kubelet::names;

/// The error in a given selector, if any.
type Check = fn(&str) -> Result<(), String>;

/// Whether the selectors have the forms that `kubectl get` takes.
pub(super) fn check(source: &ApiServerSource, written: &Written) -> Result<(), Failure> {
    let namespace: Check = |name| names::dns_label(name).map_or(Ok(()), |why| Err(why.to_owned()));
    let labels: Check = |labels| Selector::labels(labels).map(drop);
    let fields: Check = |fields| Selector::fields(fields, |_| true).map(drop);
    for (flag, text, check) in [
        ("namespace", &source.namespace, namespace),
        ("pod-selector", &source.pod_selector, labels),
        ("pod-field-selector", &source.pod_field_selector, fields),
    ] {
        if let Some(text) = text {
            let wrong = |why| Failure::Usage(format!("{} {text:?}: {why}", written.name(flag)));
            check(text).map_err(wrong)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(namespace: &str, labels: &str, fields: &str) -> Option<String> {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let source = ApiServerSource {
            kubeconfig: None,
            by_default_kubeconfig: true,
            all_nodes: false,
            namespace: text(namespace),
            pod_selector: text(labels),
            pod_field_selector: text(fields),
        };
        let checked = check(&source, &Written::default());
        checked.err().map(|failure| failure.message().unwrap_or_default().to_owned())
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
