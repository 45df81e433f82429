//! The limits of reviews, as `docs/reference.md` states them.

use super::decisions::{LINES, PERIOD as OF_LINES};
use super::rate_limit::{MOST, OF_ALL, OF_ONE, OF_RETURNING, PERIOD, RESERVED};
use super::reviews::Lifetimes;
use super::webhook::{RIGHTS, TOKENS};
use crate::api::documented::{assert_states, count, too_many};

#[test]
fn the_reference_has_how_long_an_answer_counts() {
    let accepted = |Lifetimes { accepted, renew_after, .. }| vec![accepted.into(), renew_after.into()];
    let rejected = |Lifetimes { rejected, .. }| vec![rejected.into()];
    assert_states(
        "| answer | counts for | renewed after |",
        &[
            ("a token is valid", accepted(TOKENS)),
            ("a token is invalid", rejected(TOKENS)),
            ("a right is granted", accepted(RIGHTS)),
            ("a right is denied", rejected(RIGHTS)),
        ],
    );
}

#[test]
fn the_reference_has_the_limits_of_invented_tokens() {
    let period = PERIOD.into();
    let invalid = [period, count(OF_ONE), count(OF_ALL), count(OF_ALL), count(RESERVED), period];
    assert_states(
        "| tokens | limit |",
        &[
            ("that were accepted before", vec![]),
            ("that turn out to be invalid", invalid.to_vec()),
            ("unknown ones beyond that", vec![too_many()]),
            ("that come back after a 429", vec![too_many(), count(OF_RETURNING), period]),
            ("that wait in queues", vec![count(MOST)]),
        ],
    );
}

#[test]
fn the_reference_has_the_limits_of_lines_of_refusals() {
    assert_states(
        "| refused requests | lines in the log |",
        &[
            ("of one client, one user and one reason", vec![OF_LINES.into()]),
            ("beyond that", vec![count(LINES), OF_LINES.into()]),
        ],
    );
}
