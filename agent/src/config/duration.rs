//! Durations as Go writes them, because the kubelet's configuration does: `20s`, `1m30s`, `500ms`.

use std::time::Duration;

/// Maximum length of the text. Longer numbers of hours could overflow `std`'s duration.
const LONGEST: usize = 16;
const BAD: &str = "must be a number and a unit, such as 20s, 1m30s or 500ms";
/// Go's longest duration, about 292 years.
const LONGEST_DURATION: Duration = Duration::from_nanos(i64::MAX.unsigned_abs());

/// Parses a duration like Go's `time.ParseDuration`, but rejects negative ones.
pub(crate) fn go_duration(text: &str) -> Result<Duration, &'static str> {
    // kube parses text without a number as zero and panics on numbers that are too large.
    if text.len() > LONGEST || !text.contains(|c: char| c.is_ascii_digit()) {
        return Err(BAD);
    }
    let parsed: kube::core::Duration = text.parse().map_err(|_| BAD)?;
    let duration = Duration::from(parsed);
    if parsed.is_negative() || duration > LONGEST_DURATION { Err(BAD) } else { Ok(duration) }
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
            assert_eq!(go_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(go_duration("0"), Ok(Duration::ZERO));
        assert_eq!(go_duration("1µs2ns"), Ok(Duration::from_nanos(1_002)));
    }

    #[test]
    fn invalid_durations_are_refused() {
        let long = "999999999999999h".repeat(400);
        let invalid = "9999999999999999h 2562048h 20 s -1s 1d .s 1.2.3s 99999999999999999999s 1s2 + é infs";
        for text in invalid.split(' ').chain([&*long, "", "1 s"]) {
            assert_eq!(go_duration(text), Err(BAD), "{text}");
        }
    }
}
