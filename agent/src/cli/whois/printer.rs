//! Prints answers: as a table, as YAML, or as the agent's own lines of JSON.

use std::borrow::Cow;

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
pub(crate) struct Printer<'a> {
    output: Output,
    /// The columns of the table.
    fields: &'a [String],
    /// Their widths so far. They only grow.
    widths: Vec<usize>,
    pub(crate) all_found: bool,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(output: Output, fields: &'a [String]) -> Self {
        Self { output, fields, widths: Vec::new(), all_found: true }
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
        for answer in &answers {
            let error = answer["error"].as_str().or(answer["contradiction"].as_str());
            if let Some(error) = error.map(str::to_owned).or_else(|| contested(answer)) {
                let query = text(answer, "query");
                let (start, mark) =
                    query.char_indices().nth(QUOTED).map_or((query, ""), |(end, _)| (&query[..end], "…"));
                eprintln!("pod-index: {:?}: {}", format!("{}{mark}", harmless(start)), harmless(&error));
            }
        }
        Ok(is_open)
    }

    /// A line for each pod that was found, after the headings if they are missing.
    fn table(&mut self, answers: &[Value]) -> String {
        let row = |answer| self.fields.iter().map(|field| cell(answer, field)).collect::<Vec<_>>();
        let rows: Vec<_> = answers.iter().filter(|answer| answer["found"] == true).map(row).collect();
        let headings =
            self.widths.is_empty().then(|| self.fields.iter().map(|field| heading(field)).collect());
        let headings = headings.filter(|_| !rows.is_empty());
        table::lines(&mut self.widths, &headings.into_iter().chain(rows).collect::<Vec<_>>())
    }
}

/// The other pods that claim the IP of the answer.
fn contested(answer: &Value) -> Option<String> {
    let others: Vec<_> = answer["contested"].as_array()?.iter().filter_map(Value::as_str).collect();
    let more = others.len().saturating_sub(CLAIMANTS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("also claimed by {}{more}", others[..others.len().min(CLAIMANTS)].join(", ")))
}

/// The name of a kind or of a key, for users.
fn words(name: &str) -> &str {
    match name {
        "uid" => "UID",
        "mirrorUid" => "mirror UID",
        "containerId" => "container ID",
        "logPath" => "log path",
        "logLink" => "log link",
        "ip" => "IP",
        "pid" => "PID",
        "nameOnly" => "name only",
        other => other,
    }
}

fn text<'a>(answer: &'a Value, field: &str) -> &'a str {
    answer[field].as_str().unwrap_or_default()
}

/// `podIP` is `POD IP`.
fn heading(field: &str) -> Cow<'static, str> {
    field.replace("By", " By").replace("IP", " IP").replace("UID", " UID").to_uppercase().into()
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
        _ => text(answer, field).into(),
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
    let is_clear = key == kind || key == "mirror UID";
    let mut found_by = if is_clear { key.to_owned() } else { format!("{kind}: {key}") };
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
        let fields = ["name", "podUID"].map(str::to_owned);
        let mut printer = Printer::new(Output::Table, &fields);
        let line = r#"{"found":true,"query":"u-1","kind":"uid","foundBy":"uid","namespace":"shop","name":"web","labels":{}}"#;
        let answer: Value = serde_json::from_str(line).unwrap();
        let [first, second] = [(); 2].map(|()| printer.table(std::slice::from_ref(&answer)));
        assert_eq!(first.lines().count(), 2, "with the headings");
        assert_eq!(first.lines().last(), second.lines().last());
        assert_eq!(printer.table(&[]), "");
    }
}
