//! Label selectors: the grammar of apimachinery's `labels.Parse` without `>` and `<`, and its matching.

use std::collections::{BTreeMap, BTreeSet};

use pod_index_kubelet::names;

/// Maximum number of keys and values together.
const MOST: usize = 256;

const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// Requirements, all of which must match. Sorted, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    is_negated: bool,
    /// One of which the label has. `None`: any.
    values: Option<BTreeSet<String>>,
}

impl Labels {
    /// Parses a selector such as `app in (a, b), tier != test, !canary`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim_matches(WHITE_SPACE);
        let (mut requirements, mut terms, mut is_within) = (BTreeSet::new(), 0, false);
        // A comma within parentheses separates values.
        let parts = text.split(|c| {
            is_within = if is_within { c != ')' } else { c == '(' };
            c == ',' && !is_within
        });
        for part in parts.filter(|_| !text.is_empty()) {
            let requirement = Requirement::parse(part.trim_matches(WHITE_SPACE))
                .map_err(|why| format!("unable to parse requirement: {why}"))?;
            let of_this = 1 + requirement.values.as_ref().map_or(0, BTreeSet::len);
            if requirements.insert(requirement) {
                terms += of_this;
            }
            if terms > MOST {
                return Err(format!("at most {MOST} keys and values are allowed"));
            }
        }
        Ok(Self(requirements.into_iter().collect()))
    }

    /// The number of keys to look up.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.0
            .iter()
            .all(|requirement| requirement.holds(labels.and_then(|labels| labels.get(&requirement.key))))
    }
}

impl Requirement {
    fn parse(text: &str) -> Result<Self, String> {
        let (key, is_negated, values) = if let Some(key) = text.strip_prefix('!') {
            (key, true, None)
        } else if let Some(set) = text.strip_suffix(')') {
            let (head, values) = set.split_once('(').unwrap_or((set, ""));
            match head.trim_end_matches(WHITE_SPACE).rsplit_once(WHITE_SPACE) {
                Some((key, "in")) => (key, false, Some(values)),
                Some((key, "notin")) => (key, true, Some(values)),
                _ => return Err(format!("found '{head}' before '(', expected: in, notin")),
            }
        } else if let Some((key, value)) = text.split_once("!=") {
            (key, true, Some(value))
        } else if let Some((key, value)) = text.split_once('=') {
            (key, false, Some(value.strip_prefix('=').unwrap_or(value)))
        } else {
            (text, false, None)
        };
        let key = key.trim_matches(WHITE_SPACE);
        if let Some(why) = names::qualified_name(key) {
            return Err(format!("key: Invalid value: {key:?}: {why}"));
        }
        // An empty item is the empty value, and so is the item of `()`.
        let value = |value: &str| value.trim_matches(WHITE_SPACE).to_owned();
        let values = values.map(|values| values.split(',').map(value).collect::<BTreeSet<_>>());
        for value in values.iter().flatten() {
            if let Some(why) = names::label_value(value) {
                return Err(format!("values[{key}]: Invalid value: {value:?}: {why}"));
            }
        }
        Ok(Self { key: key.to_owned(), is_negated, values })
    }

    fn holds(&self, value: Option<&String>) -> bool {
        let is_in = |value| self.values.as_ref().is_none_or(|values| values.contains(value));
        // A missing label has no value.
        value.is_some_and(is_in) != self.is_negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Labels::parse(selector).unwrap_or_else(|why| panic!("{selector}: {why}")).matches(Some(&labels))
    }

    #[test]
    fn each_operator_selects_as_in_the_api_server() {
        let web = [("app", "web"), ("tier", "front"), ("empty", "")];
        for (selector, selected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("absent", false),
            ("!absent", true),
            ("app=web", true),
            ("app==web", true),
            (" app = web , tier = front ", true),
            ("app=web,tier=back", false),
            ("app!=web", false),
            ("absent!=web", true),
            ("app in (web)", true),
            ("app in(db,web)", true),
            ("app in (db)", false),
            ("absent in (web)", false),
            ("app notin (db, web)", false),
            ("app notin (db)", true),
            ("absent notin (db)", true),
            ("empty=", true),
            ("app=", false),
            ("empty=,app", true),
            ("empty in (,x)", true),
            ("app in (,)", false),
            ("app in ()", false),
            ("empty in ()", true),
            ("app notin ()", true),
            ("empty notin ()", false),
            ("in in (in)", false),
            ("example.com/app!=x", true),
        ] {
            assert_eq!(matches(selector, &web), selected, "{selector:?}");
        }
        assert!(Labels::parse("!app").unwrap().matches(None));
        assert!(!Labels::parse("app").unwrap().matches(None));
    }

    #[test]
    fn invalid_label_selectors_are_refused() {
        for selector in [
            ",",
            "a,",
            "a,,b",
            "=a",
            "a=b c",
            "a in",
            "a in b",
            "a in (",
            "a in (b",
            "!",
            "!!a",
            "!a=b",
            "a=(b)",
            "a b",
            "a>",
            "a>b",
            "a>1",
            "a < 1",
            "a=b=c",
            "-a",
            "a/b/c",
            "/a",
            "a=-b",
            "a in (-b)",
            "a=\u{e9}",
            "(a)",
            ")",
            "a=$",
            "a====b",
            "a!b",
            "a=!b",
            "a on (b)",
            "a in (b c)",
            "a)",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ] {
            assert!(Labels::parse(selector).is_err(), "{selector:?}");
        }
    }
}
