//! The forms of names that Kubernetes allows (`k8s.io/apimachinery/pkg/util/validation`).
//!
//! Each function returns the problem, or `None`.

/// A DNS-1123 label: a namespace, a container, a volume.
#[must_use]
pub fn dns_label(name: &str) -> Option<&'static str> {
    let form =
        "must consist of lower case letters, digits or '-', and must start and end with a letter or digit";
    problem(name, is_label, [EMPTY, LONG, form])
}

/// A DNS-1123 subdomain: a pod.
#[must_use]
pub fn dns_subdomain(name: &str) -> Option<&'static str> {
    let form = "must consist of lower case letters, digits, '-' or '.', and must start and end with a letter or digit";
    match name.len() {
        254.. => Some("must be no more than 253 characters"),
        0 => Some(EMPTY),
        _ => (!name.split('.').all(is_label)).then_some(form),
    }
}

/// A key of labels or annotations: an optional subdomain, `/`, and a name.
#[must_use]
pub fn qualified_name(key: &str) -> Option<&'static str> {
    let form = "the name must consist of letters, digits, '-', '_' or '.', and must start and end with a letter or digit";
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| dns_subdomain(prefix).is_some()) {
        return Some("the part before '/' must be a DNS subdomain");
    }
    let messages = ["the name must not be empty", "the name must be no more than 63 characters", form];
    problem(name, is_label_text, messages)
}

/// A value of a label; it may be empty.
#[must_use]
pub fn label_value(value: &str) -> Option<&'static str> {
    let form =
        "must consist of letters, digits, '-', '_' or '.', and must start and end with a letter or digit";
    problem(value, is_label_text, [EMPTY, LONG, form]).filter(|_| !value.is_empty())
}

const EMPTY: &str = "must not be empty";
const LONG: &str = "must be no more than 63 characters";

/// The message for a text that is empty, too long for a label, or not of the form.
fn problem(
    text: &str,
    is_of_form: fn(&str) -> bool,
    [empty, long, form]: [&'static str; 3],
) -> Option<&'static str> {
    match text.len() {
        0 => Some(empty),
        64.. => Some(long),
        _ => (!is_of_form(text)).then_some(form),
    }
}

// A label inside a subdomain has no length limit of its own, as in Kubernetes' regular expression.
fn is_label(text: &str) -> bool {
    let ends = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    between(text, ends, |byte| ends(byte) || *byte == b'-')
}

fn is_label_text(text: &str) -> bool {
    between(text, u8::is_ascii_alphanumeric, |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
    })
}

/// Whether `text` is not empty, starts and ends with bytes that match `ends`, and otherwise has bytes that
/// match `inside`.
fn between(text: &str, ends: impl Fn(&u8) -> bool, inside: impl Fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(&ends) && bytes.last().is_some_and(&ends) && bytes.iter().all(inside)
}

#[cfg(test)]
mod tests {
    use super::{dns_label, dns_subdomain, label_value, qualified_name};

    #[test]
    fn labels_and_subdomains_are_those_of_dns() {
        for good in ["a", "a1", "web-1", "1a", &"a".repeat(63)] {
            assert_eq!(dns_label(good), None, "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "ä", "a\0", &"a".repeat(64)] {
            assert!(dns_label(bad).is_some(), "{bad}");
        }
        for good in ["a.b", "web.example.com", &"a".repeat(253)] {
            assert_eq!(dns_subdomain(good), None, "{good}");
        }
        for bad in ["", ".", "a..b", ".a", "a.", "a_b", "A", &"a".repeat(254)] {
            assert!(dns_subdomain(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn keys_have_an_optional_prefix_and_values_may_be_empty() {
        for good in ["app", "App_1.x", "example.com/app"] {
            assert_eq!(qualified_name(good), None, "{good}");
        }
        for bad in ["", "/", "a/", "/a", "a/b/c", "A/b", "-a", &"a".repeat(64)] {
            assert!(qualified_name(bad).is_some(), "{bad}");
        }
        assert_eq!((label_value(""), label_value("V_1.x")), (None, None));
        assert!(label_value("a b").is_some());
    }
}
