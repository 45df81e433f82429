//! Compares this machine's clock with the API server's.

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::{Request, header};
use k8s_openapi::jiff::fmt::rfc2822;
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;

use super::report::{Finding, span};
use crate::pipeline::api_clients::answer;

const CHECK: &str = "clock";

/// Smaller differences are not reported: the header has whole seconds.
const TOLERATED: f64 = 5.0;
/// Larger differences are failures: new certificates and tokens are likely to be rejected as not yet valid or expired.
const GRAVE: f64 = 60.0;

/// The server's clock minus this machine's, in seconds, by the `Date` header of a response.
pub(super) async fn offset(client: &Client) -> Result<f64, String> {
    let request = Request::get("/version").body(Body::empty()).map_err(|error| error.to_string())?;
    let (before, started) = (now(), Instant::now());
    let response = answer(client.send(request)).await?;
    let between = before + started.elapsed().as_secs_f64() / 2.0;
    let date = response.headers().get(header::DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| rfc2822::parse(date).ok());
    let date = date.ok_or("its answer has no date")?;
    // The header has no fraction of a second: add the average, half a second.
    #[allow(clippy::cast_precision_loss, reason = "exact for 285 million years")]
    let date = date.timestamp().as_second() as f64 + 0.5;
    Ok(date - between)
}

/// Seconds since 1970 by this machine's clock.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Judges the difference, in seconds.
pub(super) fn judge(offset: f64) -> Finding {
    let (size, direction) = (offset.abs(), if offset > 0.0 { "behind" } else { "ahead of" });
    let message = if size <= TOLERATED {
        format!("within {TOLERATED} s of the API server's")
    } else {
        format!("{} {direction} the API server's clock", span(size))
    };
    let fix = "correct the clock that is wrong, for example with chrony; certificates and tokens depend on both clocks";
    Finding::by_size(CHECK, size, (TOLERATED, GRAVE), message, fix)
}

#[cfg(test)]
mod tests {
    use super::super::report::Outcome;
    use super::*;

    #[test]
    fn a_clock_is_judged_by_its_difference_in_either_direction() {
        for (offset, result, words) in [
            (0.0, Outcome::Ok, "within 5 s"),
            (-5.0, Outcome::Ok, "within 5 s"),
            (6.0, Outcome::Warning, "6 s behind"),
            (-60.0, Outcome::Warning, "60 s ahead of"),
            (3_700.0, Outcome::Failure, "61 min behind"),
            (-1e9, Outcome::Failure, "11574 d ahead of"),
        ] {
            let finding = judge(offset);
            assert_eq!(finding.result, result, "{offset}");
            assert!(finding.message.starts_with(words), "{offset}: {}", finding.message);
        }
    }
}
