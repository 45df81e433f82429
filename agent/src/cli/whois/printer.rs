//! Prints answers: as a table, as YAML, or as the agent's own lines of JSON.

use serde_json::Value;

use crate::api::table::sanitized;
use crate::cli::Output;
use crate::cli::format::{self, Printer};
use crate::config::failure::Failure;

/// Maximum length of a query in the table. Longer ones lose their start: the end of a path is more specific.
const QUERY: usize = 40;
/// Maximum length of a query in an error message.
const QUOTED: usize = 200;
/// Maximum number of pods that a message names besides the answer.
const CLAIMANTS: usize = 3;

/// Prints these lines; a table has these columns. `false`: the output was closed.
pub(crate) fn print(printer: &mut Printer, fields: &[String], answers: &[u8]) -> Result<bool, Failure> {
    if printer.output == Output::Json {
        return format::write(answers);
    }
    let unable = |error| Failure::unable("cannot read what the agent answers", error);
    let parse = |line| serde_json::from_slice::<Value>(line).map_err(unable);
    let answers: Vec<_> = lines(answers).map(parse).collect::<Result<_, _>>()?;
    let headings = fields.iter().map(|field| heading(field)).collect();
    let text = printer.text(answers.iter(), Some(headings), |answer| {
        (answer["found"] == true).then(|| fields.iter().map(|field| cell(answer, field)).collect())
    })?;
    let is_open = format::write(text.as_bytes())?;
    for answer in answers.iter().filter(|_| printer.output != Output::Yaml) {
        let error = answer["error"].as_str().or(answer["contradiction"].as_str());
        if let Some(error) = error.map(str::to_owned).or_else(|| contested(answer)) {
            let query = sanitized(text_of(answer, "query"));
            let mark = if query.chars().nth(QUOTED).is_some() { "…" } else { "" };
            format::note(&format!("pod-index: {:?}: {error}", format!("{query:.QUOTED$}{mark}")));
        }
    }
    Ok(is_open)
}

/// The lines of answers.
pub(crate) fn lines(answers: &[u8]) -> impl Iterator<Item = &[u8]> {
    answers.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
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

fn text_of<'a>(answer: &'a Value, field: &str) -> &'a str {
    answer[field].as_str().unwrap_or_default()
}

/// `podIP` is `POD IP`.
fn heading(field: &str) -> String {
    field.replace("By", " By").replace("IP", " IP").replace("UID", " UID").to_uppercase()
}

/// The value of a field, for users.
fn cell(answer: &Value, field: &str) -> String {
    let value = &answer[field];
    match (field, value) {
        ("query", _) => end_of(text_of(answer, field)),
        ("foundBy", _) => found_by(answer),
        ("owner" | "workload", Value::Object(_)) => {
            // The owner itself is a fact.
            let owner = &answer["owner"];
            let is_derived = value["derived"] == true && owner.is_object() && owner["kind"] != value["kind"];
            let mark = if is_derived { " (derived)" } else { "" };
            format!("{}/{}{mark}", text_of(value, "kind"), text_of(value, "name"))
        }
        (_, Value::Object(members)) => {
            let members = members.keys().map(|key| format!("{key}={}", text_of(value, key)));
            members.collect::<Vec<_>>().join(",")
        }
        _ => text_of(answer, field).to_owned(),
    }
}

/// At most `QUERY` characters.
fn end_of(query: &str) -> String {
    let start = query.char_indices().nth_back(QUERY - 2).map_or(0, |(start, _)| start);
    if query.chars().count() <= QUERY { query.to_owned() } else { format!("…{}", &query[start..]) }
}

/// The key that found the pod, after the query's kind if that is different; then when it had the key for certain, if the
/// query has a time; then when the pod was removed, if it was.
fn found_by(answer: &Value) -> String {
    let [kind, key] = ["kind", "foundBy"].map(|field| words(text_of(answer, field)));
    let is_clear = key == kind || key == "mirror UID";
    let mut found_by = if is_clear { key.to_owned() } else { format!("{kind}: {key}") };
    if !answer["from"].is_null() {
        found_by.extend([" at ", text_of(answer, "at")]);
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
}
