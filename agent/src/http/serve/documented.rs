//! The limits of clients, as `docs/reference.md` states them. Its rows are of several modules.

use hyper::StatusCode;

use super::CONNECTIONS;
use super::activity::{CHECK, HEAD_TIMEOUT, IDLE_TIMEOUT, KEEP_ALIVE};
use super::connection::{HANDSHAKE_TIMEOUT, HEAD_BYTES, HEADERS};
use super::stall::{CREDIT, RATE, STALL};
use super::tcp::SILENCE;
use crate::api::client::{ALL_LARGE, LARGE};
use crate::api::documented::{assert_states, bytes, count, status, too_many};
use crate::api::refusal::Reason;
use crate::api::{large, selectors};
use crate::config::shutdown::DRAIN;
use crate::http::access::rate_limit;
use crate::pod_api::watch;

#[test]
fn the_reference_has_the_limits_of_clients() {
    assert_eq!(HANDSHAKE_TIMEOUT, HEAD_TIMEOUT, "one row of the reference has both");
    let keep_alive: u64 = KEEP_ALIVE.strip_prefix("timeout=").unwrap().parse().unwrap();
    let head_too_large = count(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.as_u16());
    let of_head = [HEAD_TIMEOUT, HEAD_TIMEOUT + CHECK].map(Into::into);
    let of_watch = [watch::MOST, watch::LEAST, 2 * watch::LEAST].map(Into::into);
    let of_objects = [count(LARGE), count(ALL_LARGE), large::PATIENCE.into(), too_many()];
    let of_tokens =
        [rate_limit::PERIOD.into(), count(rate_limit::OF_ONE), count(rate_limit::OF_ALL), too_many()];
    assert_states(
        "| limit | value | beyond it |",
        &[
            ("connections without a watch", vec![count(CONNECTIONS)]),
            ("idle connections", vec![IDLE_TIMEOUT.into(), count(keep_alive)]),
            ("header of a request", vec![bytes(HEAD_BYTES), count(HEADERS), head_too_large]),
            ("time for a header, or for a TLS handshake", of_head.to_vec()),
            ("a client that has vanished", vec![SILENCE.into()]),
            ("reading an answer", vec![STALL.into(), CREDIT.into(), bytes(RATE)]),
            ("watches", vec![too_many()]),
            ("duration of a watch", of_watch.to_vec()),
            ("[single objects](#single-objects) at once", of_objects.to_vec()),
            ("name in `Host`", vec![status(Reason::MisdirectedRequest)]),
            ("label selector", vec![count(selectors::MOST), status(Reason::BadRequest)]),
            ("invalid bearer tokens", of_tokens.to_vec()),
            ("shutdown", vec![DRAIN.into()]),
        ],
    );
}
