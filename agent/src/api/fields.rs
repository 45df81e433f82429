//! Field selectors: the grammar of apimachinery's `fields.ParseSelector`.

/// What a field must or must not be.
#[derive(Debug)]
pub(crate) struct Term<'a> {
    pub(crate) field: &'a str,
    pub(crate) is_equal: bool,
    pub(crate) value: String,
}

/// The terms of a selector such as `status.phase!=Running,spec.nodeName=node-1`.
pub(crate) fn parse(text: &str) -> impl Iterator<Item = Result<Term<'_>, String>> {
    let terms = split(text).into_iter().filter(|term| !term.is_empty());
    terms.map(move |term| Term::parse(term, text))
}

impl<'a> Term<'a> {
    fn parse(term: &'a str, selector: &str) -> Result<Self, String> {
        let at = term.find("!=").into_iter().chain(term.find('=')).min();
        let Some(at) = at.filter(|at| *at > 0) else {
            return Err(format!("invalid selector: {selector:?}; can't understand {term:?}"));
        };
        let (field, rest) = term.split_at(at);
        let (value, is_equal) = if let Some(value) = rest.strip_prefix("!=") {
            (value, false)
        } else {
            (rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')).unwrap_or(rest), true)
        };
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
