//! The text of one query: the time of its event, the start of its process, and the forms that no [`Identity`] has.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use pod_index::Time;
use pod_index::identity::Identity;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::config::duration::go_duration;

/// A process of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) id: u32,
    /// When it was started since the machine was, if the query says so.
    pub(super) started: Option<Duration>,
}

/// `QUERY at=TIME`, from `{"query": …, "at": …}`. `None`: the query is no such object.
pub(crate) fn of_json(query: &[u8]) -> Option<String> {
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

/// The time of an event: RFC 3339; or since 1970 in seconds (also with a fraction), milliseconds, microseconds or
/// nanoseconds, told apart by their size; or how long ago it was: `-5s`.
pub(crate) fn time(text: &str) -> Result<Time, String> {
    let error = || {
        let text = shortened(text);
        format!("at: {text:?} is no time; give RFC 3339, a number since 1970, or how long ago, such as -5s")
    };
    if let Some(ago) = text.strip_prefix('-') {
        let ago = go_duration(ago).map_err(|_| error())?;
        let now = Timestamp::now().as_nanosecond();
        let then =
            i64::try_from(ago.as_nanos()).ok().and_then(|ago| i64::try_from(now).ok()?.checked_sub(ago));
        return then.map(Time::from_nanos).ok_or_else(error);
    }
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

/// The address in `10.0.0.7:443`, `[fd00::7]:443`, `10.0.0.7/32` or `fd00::7/128`, as flows and routes have it. An address
/// alone is an identity already. `None`: the text has none of these forms. An error: it is a range of addresses.
pub(super) fn address(text: &str) -> Option<Result<IpAddr, String>> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(Ok(address.ip().to_canonical()));
    }
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    Some(if bits == all {
        Ok(address.to_canonical())
    } else {
        Err(format!("{text} is a range of addresses; give one address"))
    })
}

/// The start of a container ID after the name of its runtime, as in `docker://3e5f0b1c3e5f`.
pub(super) fn short_id_of_runtime(text: &str) -> Option<&str> {
    let (runtime, rest) = text.split_once(':')?;
    let id = rest.strip_prefix("//")?;
    (!runtime.is_empty() && is_short_id(id)).then_some(id)
}

/// Whether the text may be the start of a container ID, as `crictl ps` shows it.
pub(super) fn is_short_id(text: &str) -> bool {
    (12..64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
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
        Ok(Identity::Pid(id)) => Some(Process { id, started }),
        _ => None,
    }
}

/// In RFC 3339.
pub(crate) fn written(time: Time) -> String {
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
    fn a_time_may_be_relative_to_now() {
        let now = Time::from_nanos(i64::try_from(Timestamp::now().as_nanosecond()).unwrap());
        let then = time("-1h30m").unwrap();
        let ago = now.as_nanos() - then.as_nanos();
        // The clock may be adjusted during the test.
        assert!((5_390_000_000_000..5_410_000_000_000).contains(&ago), "{ago}");
        for text in ["-", "-5", "--5s", "-5x", "- 5s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_may_have_a_port_or_the_length_of_its_prefix() {
        let address = |text: &str| super::address(text);
        let v4: IpAddr = [10, 0, 0, 7].into();
        for text in ["10.0.0.7:443", "10.0.0.7/32", "[::ffff:10.0.0.7]:80", "::ffff:10.0.0.7/128"] {
            assert_eq!(address(text), Some(Ok(v4)), "{text}");
        }
        let v6: IpAddr = "fd00::7".parse().unwrap();
        for text in ["[fd00::7]:443", "fd00::7/128"] {
            assert_eq!(address(text), Some(Ok(v6)), "{text}");
        }
        for text in ["10.0.0.0/8", "fd00::/64", "10.0.0.7/33"] {
            assert!(address(text).is_some_and(|found| found.is_err()), "{text}");
        }
        for text in ["10.0.0.7", "shop/web", "web:443", "10.0.0.7:99999", "10.0.0.7/x", "10.0.0/32"] {
            assert_eq!(address(text), None, "{text}");
        }
    }

    #[test]
    fn a_short_container_id_may_have_its_runtime() {
        assert_eq!(short_id_of_runtime("docker://3e5f0b1c3e5f"), Some("3e5f0b1c3e5f"));
        for text in ["docker://3e5f0b1c3e5", "://3e5f0b1c3e5f", "docker://web-0-web-0-web", "3e5f0b1c3e5f"] {
            assert_eq!(short_id_of_runtime(text), None, "{text}");
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
        let found = |started| Some(Process { id: 4711, started });
        assert_eq!(process("4711"), found(None));
        assert_eq!(process("4711 @12000000"), found(Some(Duration::from_millis(12))));
        assert_eq!(process(" 4711@12000000 at=5"), found(Some(Duration::from_millis(12))));
        for text in ["4711@", "4711@x", "x@5", "10.0.0.7", "4711@5@6"] {
            assert_eq!(process(text), None, "{text}");
        }
    }
}
