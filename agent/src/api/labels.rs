//! Label selectors: the grammar of apimachinery's `labels.Parse` without `>` and `<`, and its matching.

use std::collections::{BTreeMap, BTreeSet};

use pod_index_kubelet::names;

/// Maximum number of keys and values together.
const MOST: usize = 256;

const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
const OPERATORS: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];

/// Requirements, all of which must match. Sorted, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    is_negated: bool,
    test: Test,
}

/// What a label's value is tested for. A missing label passes no test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    Exists,
    In(BTreeSet<String>),
}

impl Labels {
    /// Parses a selector such as `app in (a, b), tier != test, !canary`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Tokens(text.trim_start_matches(WHITE_SPACE));
        let (mut requirements, mut terms) = (BTreeSet::new(), 0);
        let mut is_over = tokens.peek().is_empty();
        while !is_over {
            let requirement =
                tokens.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
            let of_this = requirement.terms();
            if requirements.insert(requirement) {
                terms += of_this;
            }
            if terms > MOST {
                return Err(format!("at most {MOST} keys and values are allowed"));
            }
            is_over = match tokens.next() {
                "" => true,
                "," => false,
                other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
            };
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
    fn terms(&self) -> usize {
        1 + if let Test::In(values) = &self.test { values.len() } else { 0 }
    }

    fn holds(&self, value: Option<&String>) -> bool {
        let passes = match &self.test {
            Test::Exists => value.is_some(),
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
        };
        passes != self.is_negated
    }
}

/// The words and operators of a selector. White space ends a word. An empty token is the end.
struct Tokens<'a>(&'a str);

impl<'a> Tokens<'a> {
    fn peek(&self) -> &'a str {
        let Self(text) = self;
        let length = if text.starts_with("==") || text.starts_with("!=") {
            2
        } else if text.starts_with(OPERATORS) {
            1
        } else {
            text.find(|c| WHITE_SPACE.contains(&c) || OPERATORS.contains(&c)).unwrap_or(text.len())
        };
        &text[..length]
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek();
        self.0 = self.0[token.len()..].trim_start_matches(WHITE_SPACE);
        token
    }

    /// The next token, if it is a word.
    fn word(&mut self) -> Option<&'a str> {
        let is_word = !self.0.is_empty() && !self.0.starts_with(OPERATORS);
        is_word.then(|| self.next())
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let does_not_exist = self.peek() == "!";
        if does_not_exist {
            self.next();
        }
        let key = self.word().ok_or_else(|| format!("found '{}', expected: identifier", self.peek()))?;
        if let Some(why) = names::qualified_name(key) {
            return Err(format!("key: Invalid value: {key:?}: {why}"));
        }
        let (is_negated, test) = match self.peek() {
            _ if does_not_exist => (true, Test::Exists),
            "" | "," => (false, Test::Exists),
            _ => self.test()?,
        };
        if let Test::In(values) = &test
            && let Some((value, why)) =
                values.iter().find_map(|value| Some((value, names::label_value(value)?)))
        {
            return Err(format!("values[{key}]: Invalid value: {value:?}: {why}"));
        }
        Ok(Requirement { key: key.to_owned(), is_negated, test })
    }

    /// What follows a key, and whether it is negated.
    fn test(&mut self) -> Result<(bool, Test), String> {
        Ok(match self.next() {
            "=" | "==" => (false, Test::In([self.value()?].into())),
            "!=" => (true, Test::In([self.value()?].into())),
            "in" => (false, Test::In(self.values()?)),
            "notin" => (true, Test::In(self.values()?)),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=")),
        })
    }

    /// A single value, which may be empty: `app=`.
    fn value(&mut self) -> Result<String, String> {
        match self.word() {
            Some(value) => Ok(value.to_owned()),
            None if matches!(self.peek(), "" | ",") => Ok(String::new()),
            None => Err(format!("found '{}', expected: identifier", self.peek())),
        }
    }

    /// `(a, b)`. An empty item is the empty value, and so is the item of `()`.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        let open = self.next();
        if open != "(" {
            return Err(format!("found '{open}', expected: '('"));
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.word().unwrap_or_default().to_owned());
            match self.next() {
                "," => {}
                ")" => return Ok(values),
                other => return Err(format!("found '{other}', expected: ',' or ')'")),
            }
        }
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
