//! Field selectors: the grammar of apimachinery's `fields.ParseSelector`, and its matching. Without escapes: no value
//! of a served field has a character that would need one.

use std::collections::BTreeSet;

/// Maximum number of terms.
const MOST: usize = 128;

/// Terms, all of which must match. Sorted, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    field: usize,
    is_equal: bool,
    value: String,
}

impl Fields {
    /// Parses a selector such as `status.phase!=Running,spec.nodeName=node-1`. `index`: the index of a field that may
    /// be selected by.
    pub(crate) fn parse(text: &str, index: impl Fn(&str) -> Option<usize>) -> Result<Self, String> {
        let mut terms = BTreeSet::new();
        for term in text.split(',').filter(|term| !term.is_empty()) {
            let at = term.find("!=").into_iter().chain(term.find('=')).min();
            let Some(at) = at.filter(|at| *at > 0) else {
                return Err(format!("invalid selector: {text:?}; can't understand {term:?}"));
            };
            let (field, rest) = term.split_at(at);
            let (is_equal, value) = match rest.strip_prefix("!=") {
                Some(value) => (false, value),
                None => (true, rest.strip_prefix("==").unwrap_or(&rest[1..])),
            };
            if let Some(c) = value.chars().find(|c| matches!(c, '=' | '\\')) {
                return Err(format!("invalid field selector: {c:?} in a value"));
            }
            let field = index(field).ok_or_else(|| format!("field label not supported: {field}"))?;
            terms.insert(Term { field, is_equal, value: value.to_owned() });
            if terms.len() > MOST {
                return Err(format!("at most {MOST} terms are allowed"));
            }
        }
        Ok(Self(terms.into_iter().collect()))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether an object with these fields matches.
    pub(crate) fn matches<'a>(&self, field: impl Fn(usize) -> &'a str) -> bool {
        self.0.iter().all(|term| (field(term.field) == term.value) == term.is_equal)
    }
}
