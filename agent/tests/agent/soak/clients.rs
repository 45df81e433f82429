//! Clients of all kinds make requests. Each answer with pods is compared with the sources.

use std::io::{Read, Write};
use std::time::Instant;

use super::churn::rest;
use super::doors::{Doors, Shown, listed};
use super::site::{PODS, STAY, Site};
use crate::support::Answer;

/// One pod after another, and everything else.
pub fn single_requests(site: &Site, doors: &Doors, turn: u64) {
    let names = [
        format!("stays-{}-node-1", turn % STAY),
        format!("pod-{}", turn * 31 % PODS),
        format!("churn-{}-node-1", turn % 20),
    ];
    let name = &names[usize::try_from(turn % 3).unwrap()];
    let asked = Instant::now();
    let answer = doors.get(turn, &format!("/pods/default/{name}"));
    let shown = (answer.code == 200).then(|| answer.json::<Shown>().version().unwrap());
    assert!(shown.is_some() || answer.code == 404, "{name}: {} {}", answer.code, answer.body);
    site.truth.check(asked, name, shown);
    doors.get(turn, &format!("/whois?q=unknown-{turn}"));
    let others = ["/mirrors", "/sources", "/whois?q=x", "/readyz", "/nowhere"];
    doors.get(turn / 2, others[usize::try_from(turn).unwrap() % others.len()]);
    rest(15);
}

pub fn figures(doors: &Doors, turn: u64) {
    assert_eq!(doors.get(turn, "/metrics").code, 200);
    rest(200);
}

/// All pods: plain, compressed, and as the pod API lists them.
pub fn lists(site: &Site, doors: &Doors, turn: u64) {
    let headers = if turn.is_multiple_of(2) { "Accept-Encoding: gzip\r\n" } else { "" };
    let path = if turn % 3 == 2 { "/api/v1/pods" } else { "/pods" };
    let asked = Instant::now();
    let answer = doors.send(turn / 2, &format!("GET {path}"), headers, "");
    site.truth.check_all(asked, &listed(&answer));
    rest(1000);
}

/// One request after another on a kept connection.
pub fn on_one_connection(doors: &Doors, turn: u64) {
    let mut stream = doors.connect(turn);
    for number in 0..100 {
        let last = if number == 99 { "Connection: close\r\n" } else { "" };
        write!(stream, "GET /whois?q=u-{turn}-{number} HTTP/1.1\r\nHost: l\r\n{last}\r\n").unwrap();
        // A response of this size arrives in one piece.
        let read = stream.read(&mut [0; 4096]).unwrap();
        assert!(read > 0, "the connection ended");
        rest(8);
    }
}

/// Half a header, a list that is not read, garbage, nothing; then disconnects. By the socket, by TLS, and to
/// the port without TLS.
pub fn rude(doors: &Doors, turn: u64) {
    let words: &[u8] = match turn % 4 {
        0 => b"GET /pods HTTP/1.1\r\nHo",
        1 => b"GET /pods HTTP/1.1\r\nHost: l\r\n\r\n",
        2 => b"\x16\x03\x01nonsense\r\n\r\n",
        _ => b"",
    };
    let mut held: Vec<_> = (0..4).map(|number| doors.connect(number)).collect();
    let mut knocking: Vec<_> = (0..2).map(|_| doors.knock()).collect();
    for stream in &mut held {
        let _ = stream.write_all(words);
    }
    for stream in &mut knocking {
        let _ = stream.write_all(words);
    }
    rest(250);
    if turn % 4 == 2 {
        let answer = Answer::read(held.swap_remove(0));
        assert!(answer.code == 400 || answer.code == 0, "{}", answer.code);
    }
}
