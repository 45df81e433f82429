//! What another decoder has found, as JSON: read from how it prints its structs, since they have no JSON of their own.

use serde_json::{Map, Value, json};

/// The JSON of a printed struct. `like` tells which messages are inlined: those whose name it does not have.
pub fn to_json(printed: &str, like: &Value) -> Value {
    let mut parser = Parser { rest: printed };
    let tree = parser.tree();
    assert_eq!(parser.rest.trim(), "", "more was printed");
    tree.json(like).expect("an object")
}

/// A printed value.
#[derive(Debug)]
enum Tree {
    None,
    Text(String),
    Word(String),
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
    /// A struct, or a variant with one value.
    Struct(String, Vec<(String, Self)>),
}

impl Tree {
    /// `None` if JSON does not have it.
    fn json(&self, like: &Value) -> Option<Value> {
        match self {
            Self::None => None,
            Self::Text(text) => Some(json!(text)),
            Self::Word(word) => Some(serde_json::from_str(word).expect("a number or a truth value")),
            Self::List(values) if values.is_empty() => None,
            Self::List(values) => {
                let values = values.iter().enumerate();
                Some(values.map(|(at, value)| value.json(&like[at]).expect("a value")).collect())
            }
            Self::Map(entries) if entries.is_empty() => None,
            Self::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| {
                    let Self::Text(key) = key else { panic!("{key:?} is no key") };
                    (key.clone(), value.json(&Value::Null).expect("a value"))
                });
                Some(Value::Object(entries.collect()))
            }
            Self::Struct(name, fields) => Some(match &**name {
                "Time" => {
                    let seconds = number(fields, "seconds");
                    json!(k8s_openapi::jiff::Timestamp::from_second(seconds).unwrap().to_string())
                }
                "Quantity" => field(fields, "string").json(&Value::Null)?,
                "IntOrString" if number(fields, "type") == 0 => {
                    field(fields, "int_val").json(&Value::Null)?
                }
                "IntOrString" => field(fields, "str_val").json(&Value::Null)?,
                "FieldsV1" => {
                    let Self::List(bytes) = field(fields, "raw") else { panic!("no bytes") };
                    let byte =
                        |byte: &Self| if let Self::Word(byte) = byte { byte.parse().ok() } else { None };
                    let bytes: Vec<u8> = bytes.iter().filter_map(byte).collect();
                    serde_json::from_slice(&bytes).unwrap()
                }
                _ => Value::Object(object(fields, like)),
            }),
        }
    }
}

fn object(fields: &[(String, Tree)], like: &Value) -> Map<String, Value> {
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    let mut object = Map::new();
    for (name, value) in fields {
        let known = like.as_object().and_then(|like| like.keys().find(|key| plain(key) == plain(name)));
        let inner = known.map_or(&Value::Null, |key| &like[key]);
        match (known, value) {
            (Some(key), value) => object.extend(value.json(inner).map(|value| (key.clone(), value))),
            (None, Tree::Struct(type_name, fields)) if plain(type_name) == plain(name) => {
                object.extend(self::object(fields, like));
            }
            (None, Tree::Struct(type_name, fields)) if name == "handler" && type_name == "ProbeHandler" => {
                object.extend(self::object(fields, like));
            }
            // JSON lacks it: let the comparison fail with its name.
            (None, value) => object.extend(value.json(inner).map(|value| (name.clone(), value))),
        }
    }
    object
}

fn field<'a>(fields: &'a [(String, Tree)], name: &str) -> &'a Tree {
    &fields.iter().find(|(field, _)| field == name).expect("a field").1
}

fn number(fields: &[(String, Tree)], name: &str) -> i64 {
    if let Tree::Word(word) = field(fields, name) { word.parse().expect("a number") } else { 0 }
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    fn eat(&mut self, text: &str) -> bool {
        self.rest = self.rest.trim_start();
        if let Some(rest) = self.rest.strip_prefix(text) {
            self.rest = rest;
            return true;
        }
        false
    }

    fn expect(&mut self, text: &str) {
        assert!(self.eat(text), "expected {text:?} at {:?}", self.rest.get(..80));
    }

    fn word(&mut self) -> String {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|letter: char| !(letter.is_alphanumeric() || "_-.#".contains(letter)));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word.to_owned()
    }

    fn text(&mut self) -> String {
        let mut text = String::new();
        let mut letters = self.rest.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return text;
                }
                '\\' => match letters.next().expect("an escape").1 {
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    't' => text.push('\t'),
                    '0' => text.push('\0'),
                    'u' => {
                        let digits: String = letters
                            .by_ref()
                            .map(|(_, digit)| digit)
                            .take_while(|digit| *digit != '}')
                            .collect();
                        let number =
                            u32::from_str_radix(digits.trim_start_matches('{'), 16).expect("a number");
                        text.push(char::from_u32(number).expect("a letter"));
                    }
                    other => text.push(other),
                },
                letter => text.push(letter),
            }
        }
        panic!("a string without an end");
    }

    fn tree(&mut self) -> Tree {
        if self.eat("\"") {
            return Tree::Text(self.text());
        }
        if self.eat("[") {
            let mut values = Vec::new();
            while !self.eat("]") {
                values.push(self.tree());
                self.eat(",");
            }
            return Tree::List(values);
        }
        if self.eat("{") {
            let mut entries = Vec::new();
            while !self.eat("}") {
                let key = self.tree();
                self.expect(":");
                entries.push((key, self.tree()));
                self.eat(",");
            }
            return Tree::Map(entries);
        }
        let word = self.word();
        if word == "None" {
            return Tree::None;
        }
        if word == "Some" {
            self.expect("(");
            let value = self.tree();
            self.expect(")");
            return value;
        }
        if self.eat("{") {
            let mut fields = Vec::new();
            while !self.eat("}") {
                let name = self.word();
                self.expect(":");
                fields.push((name.trim_start_matches("r#").to_owned(), self.tree()));
                self.eat(",");
            }
            return Tree::Struct(word, fields);
        }
        if word.starts_with(char::is_uppercase) { Tree::Struct(word, Vec::new()) } else { Tree::Word(word) }
    }
}
