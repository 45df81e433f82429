//! Durations as Go writes them, because the kubelet's configuration does: `20s`, `1m30s`, `500ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// A duration that was read as Go's `time.ParseDuration` reads it, negative ones excepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoDuration(pub(crate) Duration);

/// The units and their nanoseconds; of two that begin alike, the longer one first.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
];

impl FromStr for GoDuration {
    type Err = BadDuration;

    fn from_str(text: &str) -> Result<Self, BadDuration> {
        let mut rest = text.strip_prefix('+').unwrap_or(text);
        if rest == "0" {
            return Ok(Self(Duration::ZERO));
        }
        let mut total = 0_u64;
        loop {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(BadDuration)?;
            let (number, unit) = rest.split_at(digits);
            let (unit, nanoseconds) =
                UNITS.into_iter().find(|(name, _)| unit.starts_with(name)).ok_or(BadDuration)?;
            total = total.checked_add(scaled(number, nanoseconds).ok_or(BadDuration)?).ok_or(BadDuration)?;
            rest = &rest[digits + unit.len()..];
            if rest.is_empty() {
                return Ok(Self(Duration::from_nanos(total)));
            }
        }
    }
}

/// A decimal number of units, in nanoseconds; what is less than one is cut off.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanoseconds = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes() {
        place /= 10;
        nanoseconds = nanoseconds.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(nanoseconds)
}

/// Not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadDuration;

impl fmt::Display for BadDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be a number and a unit, such as 20s, 1m30s or 500ms")
    }
}

impl std::error::Error for BadDuration {}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, milliseconds) in [
            ("20s", 20_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
        ] {
            assert_eq!(text.parse(), Ok(GoDuration(Duration::from_millis(milliseconds))), "{text}");
        }
        assert_eq!("0".parse(), Ok(GoDuration(Duration::ZERO)));
        assert_eq!("1µs2ns".parse(), Ok(GoDuration(Duration::from_nanos(1_002))));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in
            ["", "20", "s", "-1s", "1 s", "1d", ".s", "1.2.3s", "99999999999999999999s", "1s2", "+", "é"]
        {
            assert_eq!(text.parse::<GoDuration>(), Err(BadDuration), "{text}");
        }
    }
}
