//! Compares frames with those in `golden/`. `UPDATE_GOLDEN=1` rewrites them; review the diff.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use pod_index::PodUid;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::*;
use crate::api::seen::Sources;

/// 2025-06-01 12:00:00 UTC plus this many seconds.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_748_779_200 + seconds).unwrap()
}

type Pods = BTreeMap<PodUid, Arc<Row>>;

/// Pods by their first cells; the others are empty.
fn seen(rows: &[&[&str]]) -> Pods {
    let cells = |row: &[&str]| -> Arc<Row> {
        Arc::new(std::array::from_fn(|at| row.get(at).copied().unwrap_or_default().to_owned()))
    };
    rows.iter().map(|row| (row[1].into(), cells(row))).collect()
}

#[rustfmt::skip]
fn pods() -> Pods {
    let morning = "2025-06-01T09:00:00Z";
    let may = "2025-05-12T12:00:00Z";
    seen(&[
        &["kube-system", "etcd-node-1", "Running", "1/1", "0", may, "", "static", "", "node-1", "file",
          "2aaea51d8c8cbc4da88efc0d83bc17e8", "registry.k8s.io/etcd:3.6", "component=etcd"],
        &["default", "static-web-node-1", "Pending", "0/1", "0", morning, "", "static", "", "node-1", "file",
          "62072cebf7599e62412bb4184152288f", "nginx:1.27", ""],
        &["default", "web-7c5ddbdf54-q4x2n", "CrashLoopBackOff", "1/2", "12", morning, "10.244.1.17", "pod", "Deployment/web (derived)",
          "node-1", "api", "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "nginx:1.27,envoy:1.36", "app=web,tier=front"],
        &["default", "\u{fffd}[31mred", "Running", "1/1", "2", may, "", "pod", "", "node-1", "api", "e-v-i-l"],
    ])
}

fn model() -> Model {
    let mut model = never();
    model.hear(Ok(sources()), at(4));
    model.pods = pods();
    model.arrange();
    model
}

/// Before the first answer.
fn never() -> Model {
    Model { server: "127.0.0.1:10270".to_owned(), ..Model::default() }
}

fn sources() -> Sources {
    let sources = json!({
        "node": "node-1", "ready": false,
        "sources": [
            { "source": "file", "origin": "/etc/kubernetes/manifests", "seen": true, "pods": 2, "secondsSinceHeard": 3,
              "problems": [
                { "kind": "skipped", "origin": "/etc/kubernetes/manifests/web.yaml~", "message": "looks like what an editor left behind" },
                { "kind": "invalid", "origin": "/etc/kubernetes/manifests/bad.yaml", "line": 4, "field": "spec.containers", "message": "a pod needs at least one container" },
              ] },
            { "source": "api", "origin": "https://10.0.0.1:6443", "seen": false, "waitsFor": "its next try in 14 s", "problems": [
                { "kind": "request", "origin": "https://10.0.0.1:6443", "message": "connection refused" } ] },
        ],
    });
    serde_json::from_value(sources).unwrap()
}

fn key(model: &mut Model, code: KeyCode) -> bool {
    let leaves = model.key(KeyEvent::new(code, KeyModifiers::NONE));
    model.arrange();
    leaves
}

fn typed(model: &mut Model, text: &str) {
    for c in text.chars() {
        assert!(!key(model, KeyCode::Char(c)));
    }
}

/// Draws the model on a terminal of this size.
fn drawn(model: &mut Model, now: Timestamp, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, now, frame)).unwrap();
    terminal
}

/// The lines of the screen.
fn plain(model: &mut Model, now: Timestamp, width: u16, height: u16) -> String {
    let terminal = drawn(model, now, width, height);
    let buffer = terminal.backend().buffer();
    let line = |row| {
        let mut line = String::new();
        let mut skipped = 0;
        for column in 0..width {
            let symbol = buffer[(column, row)].symbol();
            if skipped == 0 {
                line += symbol;
                skipped = symbol.width();
            }
            skipped = skipped.saturating_sub(1);
        }
        line.trim_end().to_owned() + "\n"
    };
    (0..height).map(line).collect()
}

fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/top/draw/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "{name} differs:\n{text}");
}

#[test]
fn each_width_shows_what_matters_most() {
    for (width, name) in
        [(44, "narrow.txt"), (80, "pods-80.txt"), (120, "pods-120.txt"), (200, "pods-200.txt")]
    {
        assert_golden(name, &plain(&mut model(), at(5), width, 12));
    }
}

#[test]
fn an_ip_is_whole_or_not_there() {
    for ip in ["10.244.101.217", "2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff"] {
        let mut model = never();
        model.pods = seen(&[&["default", "web", "Running", "1/1", "0", "", ip, "pod"]]);
        let mut was_shown = false;
        for width in 40..160 {
            let screen = plain(&mut model, at(5), width, 8);
            let has_column = screen.lines().any(|line| line.contains(" IP"));
            assert_eq!(has_column, screen.contains(ip), "{width}: {screen}");
            assert!(has_column || !was_shown, "a wider screen shows no less: {screen}");
            was_shown = has_column;
        }
        assert!(was_shown);
    }
}

#[test]
fn a_cell_that_is_cut_ends_with_an_ellipsis() {
    for (text, width, shown) in [
        ("web", 3, "web"),
        ("web-0", 4, "web…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("ab", 1, "…"),
    ] {
        assert_eq!(shortened(text, Some(&width)), shown);
    }
}

#[test]
fn a_pod_has_its_own_page() {
    let mut model = model();
    typed(&mut model, "j");
    assert!(!key(&mut model, KeyCode::Enter));
    assert_golden("pod.txt", &plain(&mut model, at(5), 80, 22));
    typed(&mut model, "k");
    assert!(plain(&mut model, at(5), 80, 22).contains("static-web-node-1"), "another pod");
    assert!(!key(&mut model, KeyCode::Esc), "closes the pod");
    typed(&mut model, "jj");
    assert!(plain(&mut model, at(5), 80, 12).contains("NAMESPACE↑"));
    assert_eq!(model.selected, 2);
}

#[test]
fn a_status_that_asks_for_attention_is_red() {
    let mut model = model();
    // Away from the rows that are looked at.
    key(&mut model, KeyCode::End);
    let terminal = drawn(&mut model, at(5), 120, 12);
    let buffer = terminal.backend().buffer();
    let colour = |text: &str| {
        let row = |y: u16| (0..120).map(|x| buffer[(x, y)].symbol()).collect::<Vec<_>>();
        let found = (5..12).find_map(|y| {
            let line = row(y);
            (0..120).find(|x| line[*x..].concat().starts_with(text)).map(|x| (u16::try_from(x).unwrap(), y))
        });
        buffer[found.unwrap_or_else(|| panic!("{text} is not shown"))].fg
    };
    assert_eq!(colour("CrashLoop"), Color::Red);
    assert_eq!(colour("Pending"), Color::Reset);
    for (status, is) in [("Init:0/2", false), ("Init:Error", true), ("Completed", false), ("Evicted", true)] {
        assert_eq!(is_bad(status), is, "{status}");
    }
}

#[test]
fn an_unreachable_agent_is_reported_and_its_last_data_stays() {
    let mut model = model();
    model.hear(Err("connection refused".to_owned()), at(16));
    assert_golden("away.txt", &plain(&mut model, at(16), 100, 12));
    model.hear(Ok(sources()), at(20));
    let text = plain(&mut model, at(20), 100, 12);
    assert!(!text.contains("no answer") && text.contains("etcd-node-1"), "{text}");
    model.pods_problem = Some("127.0.0.1:10270 is silent for 150s".to_owned());
    let text = plain(&mut model, at(20), 100, 12);
    assert!(text.contains("the pods are outdated: 127.0.0.1:10270 is silent"), "{text}");
    let mut never = never();
    assert!(plain(&mut never, at(0), 100, 12).contains("asking"));
    never.hear(Err("connection refused".to_owned()), at(1));
    assert!(plain(&mut never, at(1), 100, 12).contains("trying again: connection refused"));
}

#[test]
fn a_source_that_waits_or_fails_says_when_it_is_tried_again() {
    let shown = |source: serde_json::Value| {
        let mut model = never();
        let answer = json!({ "node": "node-1", "ready": false, "sources": [source] });
        model.hear(Ok(serde_json::from_value(answer).unwrap()), at(0));
        plain(&mut model, at(5), 100, 12).lines().nth(1).unwrap().to_owned()
    };
    let problem = json!([{ "kind": "request", "origin": "u", "message": "refused" }]);
    // 2025-06-01 12:00:00 is the zero of `at`.
    let next_try = "2025-06-01T12:00:19Z";
    for (source, expected) in [
        (
            json!({ "source": "http", "seen": false, "waitsFor": "its next try in 15 s", "nextTry": next_try, "problems": problem }),
            "http: waits for its next try in 15 s, 1 problem",
        ),
        (json!({ "source": "http", "seen": false }), "http: not read yet"),
        (
            json!({ "source": "http", "seen": true, "pods": 3, "secondsFailing": 9, "nextTry": next_try, "problems": problem }),
            "http: 3 pods, 1 problem, next try in 14 s",
        ),
        (json!({ "source": "http", "seen": true, "pods": 3, "nextTry": next_try }), "http: 3 pods"),
        (
            json!({ "source": "http", "seen": true, "pods": 3, "secondsFailing": 9, "nextTry": "2025-06-01T11:00:00Z" }),
            "http: 3 pods, next try in 0 s",
        ),
    ] {
        assert_eq!(shown(source.clone()), expected, "{source}");
    }
}

#[test]
fn a_filter_shows_rows_with_all_of_its_words() {
    let mut model = model();
    typed(&mut model, "/WEB def");
    assert_eq!((model.shown.len(), model.pods.len()), (2, 4));
    assert!(plain(&mut model, at(5), 100, 12).contains("Pods 2/4"));
    assert!(plain(&mut model, at(5), 100, 12).contains("/WEB def▏"));
    key(&mut model, KeyCode::Enter);
    assert!(!key(&mut model, KeyCode::Char('j')));
    assert_eq!(model.filter, "WEB def", "what is typed afterwards are keys again");
    assert!(!key(&mut model, KeyCode::Esc), "clears the filter that was kept");
    assert_eq!((model.shown.len(), &*model.filter), (4, ""));
    assert!(key(&mut model, KeyCode::Esc));
    typed(&mut model, "/WEB def");
    key(&mut model, KeyCode::Backspace);
    typed(&mut model, "q");
    assert_eq!((model.shown.len(), &*model.filter), (0, "WEB deq"), "and q is a letter in it");
    assert!(plain(&mut model, at(5), 100, 12).contains("nothing matches"));
    assert!(!key(&mut model, KeyCode::Esc));
    assert_eq!((model.shown.len(), &*model.filter), (4, ""));
    // Also what has no column at this width.
    for (text, matching) in [("app=web", 1), ("nginx:1.27", 2), ("deployment/web crash", 1)] {
        typed(&mut model, &format!("/{text}"));
        assert_eq!(model.shown.len(), matching, "{text}");
        key(&mut model, KeyCode::Esc);
    }
}

#[test]
fn q_escape_and_control_c_leave() {
    for key in [
        KeyEvent::from(KeyCode::Char('q')),
        KeyEvent::from(KeyCode::Esc),
        KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL),
    ] {
        assert!(model().key(key), "{key:?}");
    }
    for before in ["/x", "\n"] {
        let mut model = model();
        typed(&mut model, before.trim_end());
        key(&mut model, KeyCode::Enter);
        assert!(model.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }
}

#[test]
fn rows_are_sorted_by_any_column_and_backwards() {
    let mut model = model();
    let names = |model: &Model| model.shown.iter().map(|row| row[1].clone()).collect::<Vec<_>>();
    assert_eq!(names(&model)[0], "static-web-node-1");
    key(&mut model, KeyCode::Char('r'));
    assert_eq!(names(&model)[0], "etcd-node-1");
    plain(&mut model, at(5), 80, 12);
    loop {
        key(&mut model, KeyCode::Char('s'));
        let by = COLUMNS[model.sorted_by].0;
        let text = plain(&mut model, at(5), 80, 12);
        assert!(text.contains(&format!("{by}↑")), "{by} in {text}");
        if by == "RESTARTS" {
            assert_eq!(names(&model)[3], "web-7c5ddbdf54-q4x2n", "12 is more than 2");
        }
        // Of the columns that are shown.
        if model.sorted_by == 0 {
            break;
        }
    }
    typed(&mut model, "ss");
    assert!(plain(&mut model, at(5), 80, 12).contains("STATUS↑"));
    key(&mut model, KeyCode::Char('r'));
    let text = plain(&mut model, at(5), 30, 12);
    assert!(text.contains("NAMESPACE↑") && names(&model)[0] == "static-web-node-1", "{text}");
}

#[test]
fn the_same_pod_stays_selected_and_the_selection_ends_at_the_last_row() {
    let mut model = model();
    let many = |from: u32| {
        let names: Vec<_> = (from..1_000).map(|i| format!("p{i:03}")).collect();
        let rows: Vec<[&str; 2]> = names.iter().map(|name| ["ns", name]).collect();
        seen(&rows.iter().map(|row| &row[..]).collect::<Vec<_>>())
    };
    model.pods = many(0);
    let shown = |model: &mut Model| {
        let text = plain(model, at(6), 80, 16);
        let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("ns")).collect();
        let first = names.first().unwrap().split_whitespace().next().unwrap().to_owned();
        (names.len(), first, model.shown[model.selected][1].clone())
    };
    for (code, first, selected) in [
        (KeyCode::Null, "p000", "p000"),
        (KeyCode::Down, "p000", "p001"),
        (KeyCode::PageDown, "p002", "p011"),
        (KeyCode::Char('k'), "p002", "p010"),
        (KeyCode::PageUp, "p000", "p000"),
        (KeyCode::Up, "p000", "p000"),
        (KeyCode::End, "p990", "p999"),
        (KeyCode::Down, "p990", "p999"),
        (KeyCode::Char('k'), "p990", "p998"),
    ] {
        key(&mut model, code);
        assert_eq!(shown(&mut model), (10, first.to_owned(), selected.to_owned()), "after {code:?}");
    }
    model.pods = many(500);
    assert_eq!(shown(&mut model), (10, "p990".to_owned(), "p998".to_owned()), "other pods are gone");
    typed(&mut model, "/p51");
    assert_eq!(shown(&mut model), (10, "p510".to_owned(), "p510".to_owned()), "a filter begins at the top");
}

#[test]
fn no_size_or_name_breaks_a_frame() {
    let mut model = model();
    // Two columns each: wider than any screen below.
    let long = "日".repeat(160);
    model.pods = seen(&[&[&*long; COLUMNS.len()]]);
    typed(&mut model, "/\u{7}日");
    key(&mut model, KeyCode::Enter);
    for view in ["", "\n"] {
        for c in view.chars() {
            key(&mut model, if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) });
        }
        for width in 0..45 {
            for height in 0..12 {
                let text = plain(&mut model, at(7), width, height);
                assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
            }
        }
        plain(&mut model, at(7), 300, 60);
    }
}
