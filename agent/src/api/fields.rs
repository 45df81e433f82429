//! Field selectors: the grammar of apimachinery's `fields.ParseSelector`, and its matching.

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
    /// Parses a selector such as `status.phase!=Running,spec.nodeName=node-1`. `index`: the index of a field that may be
    /// selected by.
    pub(crate) fn parse(text: &str, index: impl Fn(&str) -> Option<usize>) -> Result<Self, String> {
        let mut terms = BTreeSet::new();
        for term in split(text).into_iter().filter(|term| !term.is_empty()) {
            let at = term.find("!=").into_iter().chain(term.find('=')).min();
            let Some(at) = at.filter(|at| *at > 0) else {
                return Err(format!("invalid selector: {text:?}; can't understand {term:?}"));
            };
            let (field, rest) = term.split_at(at);
            let (is_equal, value) = match rest.strip_prefix("!=") {
                Some(value) => (false, value),
                None => (true, rest.strip_prefix("==").unwrap_or(&rest[1..])),
            };
            let value = unescaped(value)?;
            let field = index(field).ok_or_else(|| format!("field label not supported: {field}"))?;
            terms.insert(Term { field, is_equal, value });
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
