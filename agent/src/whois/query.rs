//! What a query has besides the identity: the time of its event, or the start of its process.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use pod_index::Time;
use pod_index::identity::Identity;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A process ID, and when the process was started since the machine was, if the query says so.
pub(super) type Process = (u32, Option<Duration>);

/// `QUERY at=TIME`, from `{"query": …, "at": …}`. `None`: the query is no such object.
pub(super) fn of_json(query: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Line<'a> {
        // Other JSON is not parsed into memory: it would be much larger there.
        #[serde(borrow)]
        query: &'a RawValue,
        #[serde(borrow)]
        at: Option<&'a RawValue>,
    }
    if !query.starts_with(b"{") {
        return None;
    }
    let Line { query, at } = serde_json::from_slice(query).ok()?;
    let text =
        |value: &RawValue| serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned());
    let at = at.map(|at| format!(" at={}", text(at)));
    Some(text(query) + &at.unwrap_or_default())
}

/// The query without ` at=TIME` at its end, and the time.
pub(super) fn split(query: &str) -> Result<(&str, Option<Time>), String> {
    let query = query.trim_ascii_end();
    let Some((rest, last)) = query.rsplit_once(|c: char| c.is_ascii_whitespace()) else {
        return Ok((query, None));
    };
    match last.strip_prefix("at=") {
        Some(at) => Ok((rest.trim_ascii_end(), Some(time(at)?))),
        None => Ok((query, None)),
    }
}

/// The time of an event: RFC 3339, or since 1970 in seconds (also with a fraction), milliseconds, microseconds or
/// nanoseconds, told apart by their size.
pub(crate) fn time(text: &str) -> Result<Time, String> {
    let error = || format!("at: {:?} is no time; give RFC 3339, or a number since 1970", shortened(text));
    if let Some((seconds, fraction)) = text.split_once('.')
        && let (Ok(seconds @ 0..100_000_000_000), true) = (seconds.parse::<i64>(), is_digits(fraction))
    {
        let nanos = format!("{fraction:0<9.9}").parse::<i64>().map_err(|_| error())?;
        return Ok(Time::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos)));
    }
    if is_digits(text) {
        let number: i64 = text.parse().map_err(|_| error())?;
        // Seconds until the year 5138, milliseconds from 1973.
        let factor = match number {
            0..100_000_000_000 => 1_000_000_000,
            100_000_000_000..100_000_000_000_000 => 1_000_000,
            100_000_000_000_000..100_000_000_000_000_000 => 1_000,
            _ => 1,
        };
        return Ok(Time::from_nanos(number.saturating_mul(factor)));
    }
    let time: Timestamp = text.parse().map_err(|_| error())?;
    Ok(Time::from_nanos(i64::try_from(time.as_nanosecond()).map_err(|_| error())?))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn shortened(text: &str) -> &str {
    text.char_indices().nth(40).map_or(text, |(end, _)| &text[..end])
}

/// A process ID, alone or as `PID@NANOSECONDS` with the start of the process since that of the machine.
pub(super) fn process(query: &str) -> Option<Process> {
    // Most queries are no process IDs, and their first byte that is no digit shows it.
    let rest = query.trim_ascii_start().trim_start_matches(|char: char| char.is_ascii_digit());
    if !rest.is_empty() && !rest.starts_with(|char: char| char == '@' || char.is_ascii_whitespace()) {
        return None;
    }
    let query = split(query).map_or(query, |(query, _)| query).trim_ascii();
    let (pid, started) = match query.split_once('@') {
        Some((pid, started)) if is_digits(started) => {
            (pid, Some(Duration::from_nanos(started.parse().ok()?)))
        }
        Some(_) => return None,
        None => (query, None),
    };
    match Identity::parse(pid) {
        Ok(Identity::Pid(pid)) => Some((pid, started)),
        _ => None,
    }
}

/// In RFC 3339.
pub(super) fn written(time: Time) -> String {
    Timestamp::from_nanosecond(time.as_nanos().into()).map_or_else(|_| String::new(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_in_each_of_its_forms() {
        let expected = Time::from_nanos(1_795_341_605_250_000_000);
        for text in [
            "2026-11-22T10:00:05.25Z",
            "2026-11-22T11:00:05.250+01:00",
            "1795341605.25",
            "1795341605250",
            "1795341605250000",
            "1795341605250000000",
        ] {
            assert_eq!(time(text), Ok(expected), "{text}");
        }
        assert_eq!(time("1795341605"), Ok(Time::from_seconds(1_795_341_605)));
        assert_eq!(time("0"), Ok(Time::from_seconds(0)));
        for text in ["", "now", "-5", "1.", ".5", "1.x", "10:00:05", "99999999999999999999", "2026-11-22"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_query_may_be_json() {
        for (json, expected) in [
            (
                r#"{"query":"shop/web","more":[{}],"at":"2026-11-22T10:00:00Z"}"#,
                Some("shop/web at=2026-11-22T10:00:00Z"),
            ),
            ("{\"at\":5, \"query\":4711}\r", Some("4711 at=5")),
            (r#"{"query":"a\nb","at":null}"#, Some("a\nb")),
            (r#"{"query":{"query":"a"}}"#, Some(r#"{"query":"a"}"#)),
            (r#"{"at":5}"#, None),
            ("{", None),
            (r#""a""#, None),
        ] {
            assert_eq!(of_json(json.as_bytes()).as_deref(), expected, "{json}");
        }
    }

    #[test]
    fn a_query_is_split_at_its_last_word() {
        assert_eq!(split("10.0.0.7 at=5"), Ok(("10.0.0.7", Some(Time::from_seconds(5)))));
        assert_eq!(split("shop/web\tat=5\r"), Ok(("shop/web", Some(Time::from_seconds(5)))));
        assert_eq!(split("at=5"), Ok(("at=5", None)), "no query is left");
        assert_eq!(split("12:cpu:/a b"), Ok(("12:cpu:/a b", None)));
        assert!(split("10.0.0.7 at=x").is_err());
    }

    #[test]
    fn a_process_may_have_its_start() {
        assert_eq!(process("4711"), Some((4711, None)));
        assert_eq!(process("4711 @12000000"), Some((4711, Some(Duration::from_millis(12)))));
        assert_eq!(process(" 4711@12000000 at=5"), Some((4711, Some(Duration::from_millis(12)))));
        for text in ["4711@", "4711@x", "x@5", "10.0.0.7", "4711@5@6"] {
            assert_eq!(process(text), None, "{text}");
        }
    }
}
