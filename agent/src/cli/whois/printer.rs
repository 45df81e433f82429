//! Prints answers: as a table, as YAML, or as the agent's own lines of JSON.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

use crate::api::table;
use crate::api::table::harmless;
use crate::cli::Output;
use crate::cli::format;
use crate::config::failure::Failure;
use crate::whois::answer::{Answer, Key, NOT_FOUND, Owner, Workload};

const HEADINGS: [&str; 10] =
    ["QUERY", "FOUND BY", "NAMESPACE", "NAME", "CONTAINER", "NODE", "OWNER", "UID", "MIRROR UID", "LABELS"];
/// Maximum length of a query in the table. Longer ones lose their start: the end of a path is more specific.
const QUERY: usize = 40;
/// Maximum length of a query in an error message.
const QUOTED: usize = 200;

/// Prints batches of answers.
pub(crate) struct Printer {
    output: Output,
    /// The columns, if not [`HEADINGS`].
    fields: Vec<String>,
    /// The widths of the columns so far. They only grow.
    widths: Vec<usize>,
    is_headed: bool,
    pub(crate) all_found: bool,
}

impl Printer {
    pub(crate) fn new(output: Output, fields: Vec<String>) -> Self {
        Self { output, fields, widths: Vec::new(), is_headed: false, all_found: true }
    }

    /// Prints these lines. `false`: the output was closed.
    pub(crate) fn print(&mut self, answers: &[u8]) -> Result<bool, Failure> {
        let lines = || answers.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        self.all_found = self.all_found && !lines().any(|line| line.starts_with(NOT_FOUND));
        if self.output == Output::Json {
            return format::write(answers);
        }
        let parse = |line| {
            serde_json::from_slice::<Answer<'_>>(line)
                .map_err(|error| Failure::unable("cannot read what the agent answers", error))
        };
        let answers: Vec<_> = lines().map(parse).collect::<Result<_, _>>()?;
        if self.output == Output::Yaml {
            let mut text = String::new();
            for answer in &answers {
                text.extend(["---\n", &format::yaml(answer)?]);
            }
            return format::write(text.as_bytes());
        }
        let text = self.table(&answers);
        let is_open = format::write(text.as_bytes())?;
        let mut errors = String::new();
        for answer in &answers {
            if let Some(error) = answer.error.as_deref().or(answer.contradiction.as_deref()) {
                let query: Cow<'_, str> = match answer.query.char_indices().nth(QUOTED) {
                    Some((end, _)) => format!("{}…", &answer.query[..end]).into(),
                    None => Cow::Borrowed(&*answer.query),
                };
                // Writing to a string does not fail.
                let _ = writeln!(errors, "pod-index: {:?}: {}", harmless(&query), harmless(error));
            }
        }
        eprint!("{errors}");
        Ok(is_open)
    }

    /// A line for each pod that was found, after the headings if they are missing.
    fn table(&mut self, answers: &[Answer<'_>]) -> String {
        let mut rows = answers
            .iter()
            .filter(|answer| answer.found)
            .map(|answer| match &*self.fields {
                [] => Vec::from(row(answer)),
                fields => chosen(answer, fields),
            })
            .peekable();
        if rows.peek().is_none() {
            return String::new();
        }
        let headings = (!self.is_headed).then(|| match &*self.fields {
            [] => HEADINGS.map(Cow::from).into(),
            fields => fields.iter().map(|field| Cow::from(heading(field))).collect(),
        });
        self.is_headed = true;
        table::lines(&mut self.widths, &headings.into_iter().chain(rows).collect::<Vec<_>>())
    }
}

/// `podIP` is POD IP.
fn heading(field: &str) -> String {
    let mut heading = String::new();
    for c in field.chars() {
        if c.is_ascii_uppercase() && heading.ends_with(|before: char| before.is_ascii_lowercase()) {
            heading.push(' ');
        }
        heading.push(c);
    }
    heading.to_ascii_uppercase()
}

/// The values of these fields.
fn chosen(answer: &Answer<'_>, fields: &[String]) -> Vec<Cow<'static, str>> {
    let answer = serde_json::to_value(answer).unwrap_or_default();
    let text = |field: &String| match &answer[field] {
        Value::String(text) => text.clone(),
        Value::Object(members) => {
            let value = |key: &str| members.get(key).and_then(Value::as_str).unwrap_or_default();
            match &**field {
                "owner" | "workload" => format!("{}/{}", value("kind"), value("name")),
                _ => members.keys().map(|key| format!("{key}={}", value(key))).collect::<Vec<_>>().join(","),
            }
        }
        _ => String::new(),
    };
    fields.iter().map(|field| text(field).into()).collect()
}

fn row<'a>(answer: &'a Answer<'_>) -> [Cow<'a, str>; HEADINGS.len()] {
    let text = |text: &'a Option<Cow<'_, str>>| Cow::from(text.as_deref().unwrap_or_default());
    let mut labels = String::new();
    for (key, value) in answer.labels.iter().flat_map(|labels| labels.iter()) {
        let comma = if labels.is_empty() { "" } else { "," };
        labels.extend([comma, &**key, "=", &**value]);
    }
    [
        end_of(&answer.query),
        found_by(answer),
        text(&answer.namespace),
        text(&answer.name),
        text(&answer.container),
        text(&answer.node),
        workload(answer).into(),
        text(&answer.pod_uid),
        text(&answer.mirror_uid),
        labels.into(),
    ]
}

/// The workload, or else the owner: a static pod's is its Node.
fn workload(answer: &Answer<'_>) -> String {
    match (&answer.workload, &answer.owner) {
        // The owner itself is a fact.
        (Some(Workload { kind, name, derived: true }), Some(owner)) if *kind != owner.kind => {
            format!("{kind}/{name} (derived)")
        }
        (Some(Workload { kind, name, .. }), _) | (None, Some(Owner { kind, name })) => {
            format!("{kind}/{name}")
        }
        (None, None) => String::new(),
    }
}

fn end_of(query: &str) -> Cow<'_, str> {
    let surplus = query.chars().count().saturating_sub(QUERY);
    match query.char_indices().nth(surplus + 1) {
        Some((start, _)) if surplus > 0 => format!("…{}", &query[start..]).into(),
        _ => query.into(),
    }
}

/// The key that found the pod, after the query's kind if that is different; then when it had the key for certain, if the
/// query has a time; then when the pod was removed, if it was.
fn found_by(answer: &Answer<'_>) -> Cow<'static, str> {
    let by = answer.found_by.map(Key::words).unwrap_or_default();
    let found_by = match (answer.kind, answer.found_by) {
        (Some(kind), Some(key)) if kind.words() != by && key != Key::MirrorUid => {
            format!("{}: {by}", kind.words()).into()
        }
        _ => by.into(),
    };
    let found_by = match &answer.at {
        Some(time) if answer.from.is_some() => format!("{found_by} at {time}").into(),
        _ => found_by,
    };
    match &answer.removed {
        Some(time) => format!("{found_by}, removed {time}").into(),
        None => found_by,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_query_is_shown() {
        for (query, shown) in [
            ("", String::new()),
            (&*"é".repeat(QUERY), "é".repeat(QUERY)),
            (&*("x".to_owned() + &"é".repeat(QUERY)), "…".to_owned() + &"é".repeat(QUERY - 1)),
        ] {
            assert_eq!(end_of(query), shown);
        }
    }

    #[test]
    fn columns_keep_their_place_from_one_batch_to_the_next() {
        let mut printer = Printer::new(Output::Table, Vec::new());
        let line = r#"{"found":true,"query":"u-1","kind":"uid","foundBy":"uid","namespace":"shop","name":"web","labels":{}}"#;
        let answer: Answer<'_> = serde_json::from_str(line).unwrap();
        let [first, second] = [(); 2].map(|()| printer.table(std::slice::from_ref(&answer)));
        assert_eq!(first.lines().count(), 2, "with the headings");
        assert_eq!(first.lines().last(), second.lines().last());
        assert_eq!(printer.table(&[]), "");
    }
}
