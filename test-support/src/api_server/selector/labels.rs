//! Label selectors, by the grammar of `labels.Parse`: `k`, `!k`, `k=v`, `k==v`, `k!=v`, `k in (v,w)`,
//! `k notin (v,w)`, `k>1`, `k<1`, joined by commas.

use serde_json::Value;

/// One requirement.
#[derive(Clone, Debug)]
pub(super) struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl Requirement {
    pub(super) fn holds(&self, labels: Option<&Value>) -> bool {
        let found = labels.and_then(|labels| labels.get(&self.key)).and_then(Value::as_str);
        let named = |found: &str| self.values.iter().any(|value| value == found);
        let numbers = || Some((found?.parse::<i64>().ok()?, self.values[0].parse::<i64>().ok()?));
        match self.operator {
            Operator::In => found.is_some_and(named),
            Operator::NotIn => !found.is_some_and(named),
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
            Operator::GreaterThan => numbers().is_some_and(|(found, than)| found > than),
            Operator::LessThan => numbers().is_some_and(|(found, than)| found < than),
        }
    }
}

/// The requirements, or why the server refuses the selector.
pub(super) fn parse(selector: &str) -> Result<Vec<Requirement>, String> {
    let mut tokens = Tokens { rest: selector };
    let mut requirements = Vec::new();
    if tokens.peek().is_empty() {
        return Ok(requirements);
    }
    loop {
        let requirement = requirement(&mut tokens);
        requirements.push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
        match tokens.next() {
            "" => return Ok(requirements),
            "," if tokens.peek() == "!" || is_word(tokens.peek()) => {}
            "," => return Err(format!("found '{}', expected: identifier after ','", tokens.peek())),
            other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
    }
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, String> {
    let mut key = tokens.next();
    let negated = key == "!";
    if negated {
        key = tokens.next();
    }
    if !is_word(key) {
        return Err(format!("found '{key}', expected: identifier"));
    }
    check_key(key)?;
    let key = key.to_owned();
    if negated || ["", ","].contains(&tokens.peek()) {
        let operator = if negated { Operator::DoesNotExist } else { Operator::Exists };
        return Ok(Requirement { key, operator, values: Vec::new() });
    }
    let (operator, several) = match tokens.next() {
        "=" | "==" => (Operator::In, false),
        "!=" => (Operator::NotIn, false),
        "in" => (Operator::In, true),
        "notin" => (Operator::NotIn, true),
        ">" => (Operator::GreaterThan, false),
        "<" => (Operator::LessThan, false),
        other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
    };
    let values = if several { several_values(tokens)? } else { vec![one_value(tokens)?] };
    let wants_number = matches!(operator, Operator::GreaterThan | Operator::LessThan);
    for value in &values {
        if wants_number && value.parse::<i64>().is_err() {
            return Err(format!(
                "values[0][{key}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            ));
        }
        if !is_label(value, 63) && !value.is_empty() {
            return Err(format!("values[0][{key}]: Invalid value: {value:?}: a valid label must be …"));
        }
    }
    Ok(Requirement { key, operator, values })
}

fn one_value(tokens: &mut Tokens<'_>) -> Result<String, String> {
    if ["", ","].contains(&tokens.peek()) {
        return Ok(String::new());
    }
    match tokens.next() {
        value if is_word(value) => Ok(value.to_owned()),
        other => Err(format!("found '{other}', expected: identifier")),
    }
}

/// `(a,b)`. An empty place is the empty value, as in `(,a)` and `()`.
fn several_values(tokens: &mut Tokens<'_>) -> Result<Vec<String>, String> {
    match tokens.next() {
        "(" => {}
        other => return Err(format!("found '{other}' expected: '('")),
    }
    let mut values = Vec::new();
    loop {
        values.push(if is_word(tokens.peek()) { tokens.next().to_owned() } else { String::new() });
        match tokens.next() {
            "," => {}
            ")" => return Ok(values),
            other => return Err(format!("found '{other}', expected: ',' or ')'")),
        }
    }
}

/// `[PREFIX/]NAME`.
fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key.rsplit_once('/').unwrap_or(("a", key));
    let is_subdomain = |text: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        is_label(text, 253) && text.bytes().all(allowed)
    };
    if is_label(name, 63) && is_subdomain(prefix) {
        return Ok(());
    }
    Err(format!(
        "<nil>: Invalid value: {key:?}: name part must consist of alphanumeric characters, '-', '_' or '.', …"
    ))
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit at each end.
fn is_label(text: &str, most: usize) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= most
        && text.bytes().all(allowed)
        && ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

const SYMBOLS: &[char] = &['=', '!', '(', ')', ',', '>', '<'];

fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(SYMBOLS)
}

/// The lexer: words, and symbols as long as they can be. Empty at the end.
struct Tokens<'s> {
    rest: &'s str,
}

impl<'s> Tokens<'s> {
    fn peek(&self) -> &'s str {
        let rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let symbol = ["==", "!="].into_iter().find(|symbol| rest.starts_with(symbol));
        let end = match symbol {
            Some(symbol) => symbol.len(),
            None if rest.starts_with(SYMBOLS) => 1,
            None => {
                rest.find(|at: char| at.is_ascii_whitespace() || SYMBOLS.contains(&at)).unwrap_or(rest.len())
            }
        };
        &rest[..end]
    }

    fn next(&mut self) -> &'s str {
        let token = self.peek();
        self.rest = &self.rest.trim_start_matches([' ', '\t', '\r', '\n'])[token.len()..];
        token
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(selector: &str, labels: &Value) -> bool {
        parse(selector).unwrap().iter().all(|requirement| requirement.holds(Some(labels)))
    }

    #[test]
    fn each_form_selects_as_a_real_server_does() {
        let labels = json!({ "app": "web", "tier": "", "count": "7", "example.com/role": "a.b_c" });
        let holding = "app; !gone; app=web; app==web; app!=db; gone!=web; app in (web,db); app in (web); app notin (db)\
            ; gone notin (web); app notin (); tier=; tier; tier in (); tier in (,x); count>6; count<8\
            ; app in(db, web) , !gone ,tier=; example.com/role=a.b_c; app = web ; in!=x; notin notin (in)";
        for holds in holding.split(';').chain([""]) {
            assert!(selects(holds, &labels), "{holds}");
        }
        let failing = "gone; !app; app=db; app=; app!=web; app in (db); gone in (web); app notin (web,db); count>7; app>1\
            ; gone<9; tier in (x); tier notin (,x); app,!tier";
        for fails in failing.split(';') {
            assert!(!selects(fails, &labels), "{fails}");
        }
    }

    #[test]
    fn a_selector_of_no_known_form_is_refused() {
        let refused = "app in web; app in (web; app in (web db); app notin; app===web; app=web=db; a b; !; !app=web; ,; app,\
            ; app,,tier; =web; (app); app=!; app>x; -app; a/b/c; /app; UP/app; app=-x; app in (-); app=é";
        for bad in refused.split(';') {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse(&format!("app={}", "x".repeat(64))).is_err());
    }
}
