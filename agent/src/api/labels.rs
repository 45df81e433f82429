//! Label selectors: the grammar of apimachinery's `labels.Parse`, and its matching.

use std::collections::{BTreeMap, BTreeSet};

use pod_index_kubelet::names;

/// Maximum number of keys and values together.
const MOST: usize = 256;

/// Requirements, all of which must match. Sorted, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operator {
    Exists,
    DoesNotExist,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    GreaterThan(i64),
    LessThan(i64),
}

impl Labels {
    /// Parses a selector such as `app in (a, b), tier != test, !canary`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        let mut requirements = BTreeSet::new();
        let mut terms = 0;
        loop {
            match parser.peek() {
                Token::Word(_) | Token::Not => {}
                Token::End => return Ok(Self(requirements.into_iter().collect())),
                other => return Err(format!("found {other}, expected: !, identifier, or 'end of string'")),
            }
            let requirement =
                parser.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
            let of_this = requirement.terms();
            if requirements.insert(requirement) {
                terms += of_this;
            }
            if terms > MOST {
                return Err(format!("at most {MOST} keys and values are allowed"));
            }
            match parser.next() {
                Token::End => return Ok(Self(requirements.into_iter().collect())),
                Token::Comma => match parser.peek() {
                    Token::Word(_) | Token::Not => {}
                    other => return Err(format!("found {other}, expected: identifier after ','")),
                },
                other => return Err(format!("found {other}, expected: ',' or 'end of string'")),
            }
        }
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

    /// Label values that every selected pod has.
    pub(crate) fn necessary(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|requirement| match &requirement.operator {
            Operator::In(values) if values.len() == 1 => Some((&*requirement.key, &**values.first()?)),
            _ => None,
        })
    }
}

impl Requirement {
    fn terms(&self) -> usize {
        match &self.operator {
            Operator::In(values) | Operator::NotIn(values) => 1 + values.len(),
            _ => 1,
        }
    }

    fn holds(&self, value: Option<&String>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Operator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Operator::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Not,
    Equals(&'a str),
    NotEquals,
    Greater,
    Less,
    Open,
    Close,
    Comma,
    End,
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Self::Word(text) | Self::Equals(text) => text,
            Self::Not => "!",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::Open => "(",
            Self::Close => ")",
            Self::Comma => ",",
            Self::End => "",
        };
        write!(f, "'{text}'")
    }
}

/// Words and operators. White space ends a word.
fn tokens(mut text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\t', '\r', '\n']);
        let special = [
            ("==", Token::Equals("==")),
            ("=", Token::Equals("=")),
            ("!=", Token::NotEquals),
            ("!", Token::Not),
            (">", Token::Greater),
            ("<", Token::Less),
            ("(", Token::Open),
            (")", Token::Close),
            (",", Token::Comma),
        ];
        let found =
            special.into_iter().find_map(|(literal, token)| Some((text.strip_prefix(literal)?, token)));
        if let Some((rest, token)) = found {
            text = rest;
            tokens.push(token);
            continue;
        }
        let end = text.find([' ', '\t', '\r', '\n', '=', '!', '(', ')', ',', '>', '<']).unwrap_or(text.len());
        if end == 0 {
            return tokens;
        }
        tokens.push(Token::Word(&text[..end]));
        text = &text[end..];
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let is_negated = self.peek() == Token::Not;
        self.at += usize::from(is_negated);
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(format!("found {other}, expected: identifier")),
        };
        if let Some(why) = names::qualified_name(key) {
            return Err(format!("key: Invalid value: {key:?}: {why}"));
        }
        let operator = match self.peek() {
            _ if is_negated => Operator::DoesNotExist,
            Token::End | Token::Comma => Operator::Exists,
            _ => self.operator(key)?,
        };
        Ok(Requirement { key: key.to_owned(), operator })
    }

    fn operator(&mut self, key: &str) -> Result<Operator, String> {
        let operator = match self.next() {
            Token::Equals(_) => Operator::In([self.value()?].into()),
            Token::NotEquals => Operator::NotIn([self.value()?].into()),
            Token::Greater => return self.number().map(Operator::GreaterThan),
            Token::Less => return self.number().map(Operator::LessThan),
            Token::Word("in") => Operator::In(self.values()?),
            Token::Word("notin") => Operator::NotIn(self.values()?),
            other => return Err(format!("found {other}, expected: in, notin, =, ==, !=, gt, lt")),
        };
        let (Operator::In(values) | Operator::NotIn(values)) = &operator else { return Ok(operator) };
        let wrong = values.iter().find_map(|value| Some((value, names::label_value(value)?)));
        match wrong {
            Some((value, why)) => Err(format!("values[{key}]: Invalid value: {value:?}: {why}")),
            None => Ok(operator),
        }
    }

    /// A single value, which may be empty: `app=`.
    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Comma => Ok(String::new()),
            Token::Word(value) => {
                self.at += 1;
                Ok(value.to_owned())
            }
            other => Err(format!("found {other}, expected: identifier")),
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        value.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        })
    }

    /// `(a, b)`. An empty item is the empty value, and so is the item of `()`.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        match self.next() {
            Token::Open => {}
            other => return Err(format!("found {other}, expected: '('")),
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek() {
                Token::Word(value) => {
                    self.at += 1;
                    value.to_owned()
                }
                _ => String::new(),
            };
            values.insert(value);
            match self.next() {
                Token::Comma => {}
                Token::Close => return Ok(values),
                other => return Err(format!("found {other}, expected: ',' or ')'")),
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
        let web = [("app", "web"), ("tier", "front"), ("weight", "7"), ("empty", "")];
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
            ("weight>6", true),
            ("weight > 7", false),
            ("weight<8", true),
            ("app>1", false),
            ("absent>1", false),
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
            "a<1.5",
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
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ] {
            assert!(Labels::parse(selector).is_err(), "{selector:?}");
        }
    }

    #[test]
    fn a_requirement_with_a_single_value_is_necessary() {
        let labels = Labels::parse("a=1, b in (2), c in (3,4), d!=5, e").unwrap();
        assert_eq!(labels.necessary().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
    }
}
