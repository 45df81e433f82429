//! Durations as Go writes them, because the kubelet's configuration does: `20s`, `1m30s`, `500ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration as parsed by Go's `time.ParseDuration`. Negative ones are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoDuration(pub(crate) Duration);

/// Maximum number of consecutive digits. With more, the hours could overflow `std`'s duration.
const MOST_DIGITS: usize = 15;
/// Maximum length of the text: two such numbers.
const LONGEST: usize = 40;
const BAD: &str = "must be a number and a unit, such as 20s, 1m30s or 500ms";
/// Go's longest duration, about 292 years.
const LONGEST_DURATION: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for GoDuration {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let is_bounded = text.split(|c: char| !c.is_ascii_digit()).all(|digits| digits.len() <= MOST_DIGITS);
        let has_digits = text.contains(|c: char| c.is_ascii_digit());
        // kube parses text without a number as zero and panics on numbers that are too large.
        if !has_digits || text.len() > LONGEST || !is_bounded {
            return Err(BAD);
        }
        let parsed: kube::core::Duration = text.parse().map_err(|_| BAD)?;
        let duration = Duration::from(parsed);
        if parsed.is_negative() || duration > LONGEST_DURATION { Err(BAD) } else { Ok(Self(duration)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go() {
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
    fn invalid_durations_are_refused() {
        let long = "999999999999999h".repeat(400);
        for text in [
            &*long,
            "9999999999999999h",
            "2562048h",
            "",
            "20",
            "s",
            "-1s",
            "1 s",
            "1d",
            ".s",
            "1.2.3s",
            "99999999999999999999s",
            "1s2",
            "+",
            "é",
            "infs",
        ] {
            assert_eq!(text.parse::<GoDuration>(), Err(BAD), "{text}");
        }
    }
}
