//! The findings, as a table for people and as JSON for programs.

use std::fmt::Write;

use serde::Serialize;

use crate::api::table::sanitized;
use crate::config::failure::Failure;

/// The result of a check, ordered by severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Outcome {
    Ok,
    /// Not checked; the message has the reason.
    Skipped,
    Warning,
    Failure,
}

/// The result of one check.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) result: Outcome,
    pub(super) message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, result: Outcome::Ok, message: message.into(), fix: None }
    }

    pub(super) fn skipped(check: &'static str, why: impl Into<String>) -> Self {
        Self { check, result: Outcome::Skipped, message: why.into(), fix: None }
    }

    pub(super) fn warning(check: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, result: Outcome::Warning, message: message.into(), fix: Some(fix.into()) }
    }

    pub(super) fn failure(check: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check, result: Outcome::Failure, message: message.into(), fix: Some(fix.into()) }
    }

    /// What a check said, or why it failed.
    pub(super) fn of(check: &'static str, done: Result<String, Failure>, fix: &str) -> Self {
        match done {
            Ok(message) => Self::ok(check, message),
            Err(failure) => Self::failure(check, failure.message().unwrap_or_default(), fix),
        }
    }
}

/// All findings, in the order of the checks.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// The most severe result. Skipped checks count as ok.
    pub(super) result: Outcome,
    pub(super) checks: Vec<Finding>,
}

impl Report {
    pub(super) fn new(checks: Vec<Finding>) -> Self {
        let worst = checks.iter().map(|finding| finding.result).max().unwrap_or(Outcome::Ok);
        let result = if worst == Outcome::Skipped { Outcome::Ok } else { worst };
        Self { result, checks }
    }

    /// A line for each check, and one more for its fix.
    pub(super) fn table(&self) -> String {
        let width = self.checks.iter().map(|finding| finding.check.len()).max().unwrap_or_default();
        let mut text = format!("{:7}  {:width$}  MESSAGE\n", "RESULT", "CHECK");
        for Finding { check, result, message, fix } in &self.checks {
            let result = format!("{result:?}").to_lowercase();
            // Writing to a string does not fail.
            let _ = writeln!(text, "{result:7}  {check:width$}  {}", sanitized(message));
            if let Some(fix) = fix {
                let _ = writeln!(text, "{:7}  {:width$}  fix: {}", "", "", sanitized(fix));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_the_worst_result_and_a_skipped_check_counts_as_ok() {
        let worst = |checks| Report::new(checks).result;
        let (ok, skipped) = (|| Finding::ok("a", "x"), || Finding::skipped("b", "y"));
        assert_eq!(worst(vec![]), Outcome::Ok);
        assert_eq!(worst(vec![ok(), skipped()]), Outcome::Ok);
        assert_eq!(worst(vec![Finding::warning("c", "z", "w"), skipped()]), Outcome::Warning);
        assert_eq!(worst(vec![Finding::failure("d", "z", "w"), ok()]), Outcome::Failure);
    }

    #[test]
    fn a_fix_is_a_line_below_the_message_of_its_finding() {
        let report = Report::new(vec![
            Finding::ok("settings", "node a"),
            Finding::failure("clock", "an hour\x1b[2J late", "set it"),
        ]);
        let expected = "\
RESULT   CHECK     MESSAGE
ok       settings  node a
failure  clock     an hour\u{fffd}[2J late
                   fix: set it
";
        assert_eq!(report.table(), expected);
    }
}
