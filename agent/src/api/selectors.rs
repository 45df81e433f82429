//! Selectors of objects: by labels with the grammar of apimachinery's `labels.Parse` without `>` and `<`, by fields with
//! that of `fields.ParseSelector` without escapes: no value of a served field has a character that would need one.

use std::collections::BTreeSet;

use pod_index_kubelet::names;

/// Maximum number of keys and values together.
pub(crate) const MOST: usize = 256;

const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];

/// Requirements, all of which must match. Sorted, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    is_negated: bool,
    /// The values that match. `None`: every value.
    values: Option<BTreeSet<String>>,
}

impl Selector {
    /// Parses a label selector such as `app in (a, b), tier != test, !canary`.
    pub(crate) fn labels(text: &str) -> Result<Self, String> {
        let text = text.trim_matches(WHITE_SPACE);
        let mut is_within = false;
        // A comma within parentheses separates values.
        let parts = text.split(|c| {
            is_within = if is_within { c != ')' } else { c == '(' };
            c == ',' && !is_within
        });
        Self::of(parts.filter(|_| !text.is_empty()).map(|part| {
            Requirement::label(part.trim_matches(WHITE_SPACE))
                .map_err(|why| format!("unable to parse requirement: {why}"))
        }))
    }

    /// Parses a field selector such as `status.phase!=Running,spec.nodeName=node-1`.
    pub(crate) fn fields(text: &str, is_known: impl Fn(&str) -> bool) -> Result<Self, String> {
        Self::of(text.split(',').filter(|term| !term.is_empty()).map(|term| {
            let Some((key, is_negated, value)) = equality(term).filter(|(key, ..)| !key.is_empty()) else {
                return Err(format!("invalid selector: {text:?}; can't understand {term:?}"));
            };
            if let Some(c) = value.chars().find(|c| matches!(c, '=' | '\\')) {
                return Err(format!("invalid field selector: {c:?} in a value"));
            }
            if !is_known(key) {
                return Err(format!("field label not supported: {key}"));
            }
            Ok(Requirement { key: key.to_owned(), is_negated, values: Some([value.to_owned()].into()) })
        }))
    }

    fn of(all: impl Iterator<Item = Result<Requirement, String>>) -> Result<Self, String> {
        let mut requirements = BTreeSet::new();
        let mut terms = 0;
        for requirement in all {
            let requirement = requirement?;
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

    /// Whether an object with these values matches.
    pub(crate) fn matches<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|Requirement { key, is_negated, values }| {
            let is_in = |value: &str| values.as_ref().is_none_or(|values| values.contains(value));
            // A missing label has no value.
            value(key).is_some_and(is_in) != *is_negated
        })
    }
}

/// The key, whether it is negated, and the value of `key=value`, `key==value` or `key!=value`.
fn equality(text: &str) -> Option<(&str, bool, &str)> {
    let (key, value) = text.split_once('=')?;
    Some(match key.strip_suffix('!') {
        Some(key) => (key, true, value),
        None => (key, false, value.strip_prefix('=').unwrap_or(value)),
    })
}

impl Requirement {
    fn label(text: &str) -> Result<Self, String> {
        let (key, is_negated, values) = if let Some(key) = text.strip_prefix('!') {
            (key, true, None)
        } else if let Some(set) = text.strip_suffix(')') {
            let (head, values) = set.split_once('(').unwrap_or((set, ""));
            match head.trim_end_matches(WHITE_SPACE).rsplit_once(WHITE_SPACE) {
                Some((key, "in")) => (key, false, Some(values)),
                Some((key, "notin")) => (key, true, Some(values)),
                _ => return Err(format!("found '{head}' before '(', expected: in, notin")),
            }
        } else if let Some((key, is_negated, value)) = equality(text) {
            (key, is_negated, Some(value))
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let value = |key: &str| labels.iter().find(|label| label.0 == key).map(|label| label.1);
        Selector::labels(selector).unwrap_or_else(|why| panic!("{selector}: {why}")).matches(value)
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
        assert!(Selector::labels("!app").unwrap().matches(|_| None));
        assert!(!Selector::labels("app").unwrap().matches(|_| None));
    }

    #[test]
    fn invalid_label_selectors_are_refused() {
        let invalid = ", ! a, a,,b =a a=b:c a:in a:in:b a:in:( a:in:(b !!a !a=b a=(b) a:b a> a>b a>1 a:<:1 a=b=c -a a/b/c /a \
                       a=-b a:in:(-b) a=\u{e9} (a) ) a=$ a====b a!b a=!b a:on:(b) a:in:(b:c) a)";
        for selector in invalid.split(' ').chain([&*"a".repeat(65)]) {
            let selector = selector.replace(':', " ");
            assert!(Selector::labels(&selector).is_err(), "{selector:?}");
        }
    }
}
