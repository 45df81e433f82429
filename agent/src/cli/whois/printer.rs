//! Prints answers: as a table, as YAML, or as the agent's own lines of JSON.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

use crate::api::table;
use crate::api::table::harmless;
use crate::cli::Output;
use crate::cli::format;
use crate::config::failure::Failure;
use crate::whois::answer::NOT_FOUND;

/// Maximum length of a query in the table. Longer ones lose their start: the end of a path is more specific.
const QUERY: usize = 40;
/// Maximum length of a query in an error message.
const QUOTED: usize = 200;
/// Maximum number of pods that a message names besides the answer.
const CLAIMANTS: usize = 3;

/// Prints batches of answers.
pub(crate) struct Printer {
    output: Output,
    /// The columns of the table.
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
            serde_json::from_slice::<Value>(line)
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
        let is_open = format::write(self.table(&answers).as_bytes())?;
        let mut errors = String::new();
        for answer in &answers {
            let query = text(answer, "query");
            let error = answer["error"].as_str().or(answer["contradiction"].as_str());
            let more = answer["more"].as_u64().map(|more| format!("{more} more pods are left out").into());
            if let Some(error) = error.map(Cow::from).or_else(|| contested(answer).map(Cow::from)).or(more) {
                let query: Cow<'_, str> = match query.char_indices().nth(QUOTED) {
                    Some((end, _)) => format!("{}…", &query[..end]).into(),
                    None => query.into(),
                };
                // Writing to a string does not fail.
                let _ = writeln!(errors, "pod-index: {:?}: {}", harmless(&query), harmless(&error));
            }
        }
        eprint!("{errors}");
        Ok(is_open)
    }

    /// A line for each pod that was found, after the headings if they are missing.
    fn table(&mut self, answers: &[Value]) -> String {
        let mut rows = answers
            .iter()
            .flat_map(|answer| answer["pods"].as_array().map_or(std::slice::from_ref(answer), Vec::as_slice))
            .filter(|answer| answer["found"] == true)
            .map(|answer| self.fields.iter().map(|field| cell(answer, field)).collect::<Vec<_>>())
            .peekable();
        if rows.peek().is_none() {
            return String::new();
        }
        let heading = |field: &String| spaced(field).to_uppercase().into();
        let headings = (!self.is_headed).then(|| self.fields.iter().map(heading).collect());
        self.is_headed = true;
        table::lines(&mut self.widths, &headings.into_iter().chain(rows).collect::<Vec<_>>())
    }
}

/// `podIP` is `pod IP`.
fn spaced(name: &str) -> String {
    let mut words = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && words.ends_with(|before: char| before.is_ascii_lowercase()) {
            words.push(' ');
        }
        words.push(c);
    }
    words
}

/// The other pods that claim the IP of the answer.
fn contested(answer: &Value) -> Option<String> {
    let others: Vec<_> = answer["contested"].as_array()?.iter().filter_map(Value::as_str).collect();
    let more = others.len().saturating_sub(CLAIMANTS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("also claimed by {}{more}", others[..others.len().min(CLAIMANTS)].join(", ")))
}

/// The name of a kind or of a key, for users: `containerId` is `container ID`.
fn words(name: &str) -> String {
    let spaced = spaced(name).to_lowercase();
    let word = |word: &str| match word {
        "uid" | "id" | "ip" | "pid" => word.to_uppercase(),
        word => word.to_owned(),
    };
    spaced.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn text<'a>(answer: &'a Value, field: &str) -> &'a str {
    answer[field].as_str().unwrap_or_default()
}

/// The value of a field, for users.
fn cell<'a>(answer: &'a Value, field: &str) -> Cow<'a, str> {
    let value = &answer[field];
    match (field, value) {
        ("query", _) => end_of(text(answer, field)),
        ("foundBy", _) => found_by(answer).into(),
        ("owner" | "workload", Value::Object(_)) => {
            // The owner itself is a fact.
            let owner = &answer["owner"];
            let is_derived = value["derived"] == true && owner.is_object() && owner["kind"] != value["kind"];
            let mark = if is_derived { " (derived)" } else { "" };
            format!("{}/{}{mark}", text(value, "kind"), text(value, "name")).into()
        }
        (_, Value::Object(members)) => {
            let members = members.keys().map(|key| format!("{key}={}", text(value, key)));
            members.collect::<Vec<_>>().join(",").into()
        }
        _ => value.as_str().unwrap_or_default().into(),
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
fn found_by(answer: &Value) -> String {
    let [kind, key] = ["kind", "foundBy"].map(|field| words(text(answer, field)));
    let mut found_by =
        if key == kind || text(answer, "foundBy") == "mirrorUid" { key } else { format!("{kind}: {key}") };
    if !answer["from"].is_null() {
        found_by.extend([" at ", text(answer, "at")]);
    }
    if let Some(time) = answer["removed"].as_str() {
        found_by.extend([", removed ", time]);
    }
    found_by
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
        let mut printer = Printer::new(Output::Table, ["name", "podUID"].map(str::to_owned).into());
        let line = r#"{"found":true,"query":"u-1","kind":"uid","foundBy":"uid","namespace":"shop","name":"web","labels":{}}"#;
        let answer: Value = serde_json::from_str(line).unwrap();
        let [first, second] = [(); 2].map(|()| printer.table(std::slice::from_ref(&answer)));
        assert_eq!(first.lines().count(), 2, "with the headings");
        assert_eq!(first.lines().last(), second.lines().last());
        assert_eq!(printer.table(&[]), "");
    }
}
