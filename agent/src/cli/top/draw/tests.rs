//! Compares frames with those in `golden/`. `UPDATE_GOLDEN=1` rewrites them; review the diff.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use super::*;
use crate::cli::top::model::Wish;
use crate::cli::top::seen::{Answer, Cells, Counts, Table};

/// 2025-06-01 12:00:00 UTC plus this many seconds.
fn at(seconds: u64) -> Moment {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Moment {
        steady: *START + Duration::from_secs(seconds),
        wall: UNIX_EPOCH + Duration::from_secs(1_748_779_200 + seconds),
    }
}

fn model() -> Model {
    let mut model = Model::new("127.0.0.1:10270".to_owned());
    model.hear(Ok(answer()), at(0));
    let counts = Counts { generation: 12.0, publications: 14.0, changes: 82.0, watchers: 2.0 };
    model.hear(Ok(Answer { pods: None, counts: Some(counts), ..answer() }), at(4));
    model
}

fn cells(table: serde_json::Value) -> Result<Vec<Cells>, serde_json::Error> {
    let table: Table = serde_json::from_value(table)?;
    Ok(table.rows.into_iter().map(|row| row.cells).collect())
}

fn answer() -> Answer {
    let row = |namespace: &str, name: &str, uid: &str, source: &str, kind: &str, phase: &str| json!({ "cells": [namespace, name, uid, source, kind, phase, "node-1"] });
    let table = json!({
        "metadata": { "resourceVersion": "12" },
        "rows": [
            row("kube-system", "etcd-node-1", "2aaea51d8c8cbc4da88efc0d83bc17e8", "file", "static", "Running"),
            row("default", "static-web-node-1", "62072cebf7599e62412bb4184152288f", "file", "static", "Pending"),
            row("default", "web-7c5ddbdf54-q4x2n", "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "api", "pod", "Running"),
            row("default", "\u{1b}[31mred\u{1b}]0;title\u{7}\u{202e}", "e-v-i-l", "api", "pod", "Running"),
        ],
    });
    let mirrors = json!({
        "managed": true,
        "pods": [
            { "namespace": "default", "name": "static-web-node-1", "podUID": "62072cebf7599e62412bb4184152288f",
              "state": "missing", "waitsFor": "backOff", "lastError": { "kind": "refused", "message": "pods is forbidden" } },
            { "namespace": "kube-system", "name": "etcd-node-1", "podUID": "2aaea51d8c8cbc4da88efc0d83bc17e8",
              "mirrorUID": "6f1c1a52-1111-4f9e-8d32-3a5a5a5a5a5a", "state": "inSync" },
        ],
        "orphans": [
            { "namespace": "kube-system", "name": "gone-node-1", "mirrorUID": "77777777-1111-4f9e-8d32-3a5a5a5a5a5a", "state": "orphaned" },
        ],
    });
    let sources = json!({
        "node": "node-1", "ready": false,
        "sources": [
            { "source": "file", "origin": "/etc/kubernetes/manifests", "seen": true, "pods": 2, "checks": 12,
              "failedChecks": 0, "updates": 3, "lastCheck": "2025-06-01T12:00:00Z", "secondsSinceHeard": 3,
              "problems": [
                { "kind": "invalid", "origin": "/etc/kubernetes/manifests/bad.yaml", "line": 4, "field": "spec.containers", "message": "a pod needs at least one container" },
                { "kind": "skipped", "origin": "/etc/kubernetes/manifests/web.yaml~", "message": "looks like what an editor left behind" },
              ] },
            { "source": "api", "origin": "https://10.0.0.1:6443", "seen": false, "problems": [
                { "kind": "request", "origin": "https://10.0.0.1:6443", "message": "connection refused" } ] },
        ],
    });
    Answer {
        pods: cells(table).ok(),
        mirrors: serde_json::from_value(mirrors).unwrap(),
        sources: serde_json::from_value(sources).unwrap(),
        counts: Some(Counts { generation: 12.0, publications: 12.0, changes: 2.0, watchers: 1.0 }),
    }
}

fn key(model: &mut Model, code: KeyCode) -> Wish {
    model.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn typed(model: &mut Model, text: &str) {
    for c in text.chars() {
        assert_eq!(key(model, KeyCode::Char(c)), Wish::Stay);
    }
}

/// Draws the model and checks what holds for every frame.
fn plain(model: &mut Model, now: Moment, width: usize, height: usize) -> String {
    let lines = frame(model, now, width, height);
    assert!(lines.len() <= height, "{} lines in {height}", lines.len());
    assert!(lines.iter().all(|line| line.width() <= width), "wider than {width}");
    lines.iter().map(|line| line.plain().trim_end().to_owned() + "\n").collect()
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
fn pods_are_shown_with_all_their_columns() {
    assert_golden("pods.txt", &plain(&mut model(), at(5), 132, 14));
}

#[test]
fn a_narrow_terminal_shows_what_matters_most() {
    assert_golden("narrow.txt", &plain(&mut model(), at(5), 44, 12));
}

#[test]
fn mirrors_and_sources_have_their_own_views() {
    let mut model = model();
    key(&mut model, KeyCode::Tab);
    assert_golden("mirrors.txt", &plain(&mut model, at(5), 132, 12));
    key(&mut model, KeyCode::Char('3'));
    assert_golden("sources.txt", &plain(&mut model, at(5), 72, 18));
}

#[test]
fn an_unreachable_agent_is_reported_and_its_last_data_stays() {
    let mut model = model();
    model.hear(Err("connection refused".to_owned()), at(16));
    assert_golden("away.txt", &plain(&mut model, at(16), 100, 12));
    model.hear(Ok(Answer { pods: None, ..answer() }), at(20));
    let text = plain(&mut model, at(20), 100, 12);
    assert!(!text.contains("no answer") && text.contains("etcd-node-1"), "{text}");
    let mut never = Model::new("127.0.0.1:10270".parse().unwrap());
    assert!(plain(&mut never, at(0), 100, 12).contains("asking"));
    never.hear(Err("connection refused".to_owned()), at(1));
    assert!(plain(&mut never, at(1), 100, 12).contains("trying again: connection refused"));
}

#[test]
fn rates_cover_the_last_seconds_and_restart_with_another_run() {
    let mut model = model();
    assert_eq!(model.rates(), Some((0.5, 20.0)));
    let counts =
        |publications, changes| Some(Counts { generation: 12.0, publications, changes, watchers: 1.0 });
    for second in 5..60 {
        model.hear(Ok(Answer { pods: None, counts: counts(14.0, 82.0), ..answer() }), at(second));
    }
    assert_eq!(model.rates(), Some((0.0, 0.0)), "what was long ago does not count");
    model.hear(Ok(Answer { pods: None, counts: counts(1.0, 5.0), ..answer() }), at(60));
    assert_eq!(model.rates(), None);
}

#[test]
fn setting_the_clock_changes_no_rate_and_no_elapsed_time() {
    for by in [3_600, -3_600] {
        let set = |moment: Moment| {
            let by_that = Duration::from_secs(3_600);
            let wall = if by > 0 { moment.wall + by_that } else { moment.wall - by_that };
            Moment { wall, ..moment }
        };
        let mut model = Model::new("127.0.0.1:10270".parse().unwrap());
        model.hear(Ok(answer()), at(0));
        let counts = Counts { generation: 12.0, publications: 14.0, changes: 82.0, watchers: 2.0 };
        model.hear(Ok(Answer { pods: None, counts: Some(counts), ..answer() }), set(at(4)));
        assert_eq!(model.rates(), Some((0.5, 20.0)), "{by}");
        model.hear(Err("connection refused".to_owned()), at(16));
        assert!(plain(&mut model, at(16), 100, 12).contains("no answer for 12 s"), "{by}");
    }
}

#[test]
fn a_static_pod_shown_as_its_mirror_is_a_static_pod_and_an_orphaned_mirror_is_no_pod() {
    let mut model = model();
    let row = |name: &str, uid: &str| json!({ "cells": ["kube-system", name, uid, "api", "mirror", "Running", "node-1"] });
    let rows = [
        row("etcd-node-1", "6f1c1a52-1111-4f9e-8d32-3a5a5a5a5a5a"),
        row("gone-node-1", "77777777-1111-4f9e-8d32-3a5a5a5a5a5a"),
    ];
    let pods = cells(json!({ "metadata": { "resourceVersion": "1" }, "rows": rows })).ok();
    model.hear(Ok(Answer { pods, ..answer() }), at(6));
    let shown = plain(&mut model, at(6), 120, 12);
    assert!(shown.contains("2aaea51d8c8cbc4da88efc0d83bc17e8") && !shown.contains("gone-node-1"), "{shown}");
    assert_eq!((model.pods.len(), model.static_pods), (1, 1));
}

#[test]
fn a_row_with_an_unknown_cell_is_shown_and_an_incomplete_row_is_not() {
    let table = |row: serde_json::Value| {
        cells(json!({ "metadata": { "resourceVersion": "1" }, "rows": [{ "cells": row }] }))
    };
    let mut model = model();
    for more in [json!([]), json!(["x"]), json!([7, null, { "a": [] }])] {
        let mut cells = json!(["ns", "name", "uid", "api", "pod", "Running", "n"]);
        cells.as_array_mut().unwrap().extend(more.as_array().unwrap().clone());
        model.hear(Ok(Answer { pods: table(cells).ok(), ..answer() }), at(6));
        let shown = plain(&mut model, at(6), 100, 12);
        let row = shown.lines().find(|line| line.starts_with("ns "));
        assert!(row.is_some_and(|row| row.contains(" name ") && row.contains("Running")), "{more}: {shown}");
    }
    assert!(table(json!(["ns", "name"])).unwrap_err().to_string().contains('7'));
}

#[test]
fn a_filter_shows_rows_with_all_of_its_words() {
    let mut model = model();
    typed(&mut model, "/WEB def");
    assert_eq!((model.pods.matching(), model.pods.len(), model.pairs.matching()), (2, 4, 1));
    assert!(plain(&mut model, at(5), 100, 12).contains("/WEB def▏"));
    key(&mut model, KeyCode::Enter);
    assert_eq!(key(&mut model, KeyCode::Char('j')), Wish::Stay);
    assert_eq!(model.filter.text, "WEB def", "what is typed afterwards are keys again");
    typed(&mut model, "/");
    key(&mut model, KeyCode::Backspace);
    typed(&mut model, "q");
    assert_eq!((model.pods.matching(), &*model.filter.text), (0, "WEB deq"), "and q is a letter in it");
    assert!(plain(&mut model, at(5), 100, 12).contains("nothing matches"));
    assert_eq!(key(&mut model, KeyCode::Esc), Wish::Stay);
    assert_eq!((model.pods.matching(), &*model.filter.text), (4, ""));
}

#[test]
fn a_filter_shows_the_pod_that_it_identifies_until_it_changes() {
    let mut model = model();
    let identified =
        |uid: &str| serde_json::from_value(json!({ "found": true, "podUID": uid })).expect("an answer");
    let uid = "62072cebf7599e62412bb4184152288f";
    typed(&mut model, "/10.0.0.7");
    assert_eq!(model.pods.matching(), 0);
    model.identify("10.0.0", &identified(uid));
    assert_eq!(model.pods.matching(), 0, "the answer to an older filter");
    model.identify("10.0.0.7", &identified(uid));
    assert_eq!((model.pods.matching(), model.pairs.matching()), (1, 1));
    assert!(plain(&mut model, at(5), 100, 12).contains("static-web-node-1"));
    model.hear(Ok(answer()), at(6));
    key(&mut model, KeyCode::Enter);
    key(&mut model, KeyCode::Char('r'));
    assert_eq!(model.pods.matching(), 1, "new data and another order keep it");
    typed(&mut model, "/8");
    assert_eq!(model.pods.matching(), 0);
}

#[test]
fn q_escape_and_control_c_leave() {
    for key in [
        KeyEvent::from(KeyCode::Char('q')),
        KeyEvent::from(KeyCode::Esc),
        KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL),
    ] {
        assert_eq!(model().key(key), Wish::Leave, "{key:?}");
    }
    let mut model = model();
    typed(&mut model, "/x");
    assert_eq!(model.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Wish::Leave);
}

#[test]
fn rows_are_sorted_by_any_column_and_backwards() {
    let mut model = model();
    let first = |model: &mut Model| model.pods.from(0).next().unwrap().cells[1].clone();
    assert_eq!(first(&mut model), "\u{1b}[31mred\u{1b}]0;title\u{7}\u{202e}");
    key(&mut model, KeyCode::Char('r'));
    assert_eq!(first(&mut model), "etcd-node-1");
    for _ in 0..8 {
        key(&mut model, KeyCode::Char('s'));
        let text = plain(&mut model, at(5), 200, 14);
        let by = model.pods.columns[model.pods.sorted_by].name;
        assert!(text.contains(&format!("{by}↑")), "{by} in {text}");
    }
    assert_eq!(model.pods.sorted_by, 0);
}

#[test]
fn scrolling_ends_at_the_last_row() {
    let mut model = model();
    let rows: Vec<_> = (0..1_000)
        .map(
            |i| json!({ "cells": ["ns", format!("p{i:03}"), format!("u{i}"), "api", "pod", "Running", "n"] }),
        )
        .collect();
    let table = json!({ "metadata": { "resourceVersion": "1" }, "rows": rows });
    model.hear(Ok(Answer { pods: cells(table).ok(), ..answer() }), at(6));
    let shown = |model: &mut Model| {
        let text = plain(model, at(6), 80, 17);
        let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("ns ")).collect();
        (names.len(), names.first().unwrap().split_whitespace().next().unwrap().to_owned())
    };
    assert_eq!(shown(&mut model), (10, "p000".to_owned()));
    for (code, first) in [
        (KeyCode::Down, "p001"),
        (KeyCode::PageDown, "p011"),
        (KeyCode::Char('k'), "p010"),
        (KeyCode::PageUp, "p000"),
        (KeyCode::Up, "p000"),
        (KeyCode::End, "p990"),
        (KeyCode::Down, "p990"),
        (KeyCode::Char('k'), "p989"),
        (KeyCode::Home, "p000"),
    ] {
        key(&mut model, code);
        assert_eq!(shown(&mut model), (10, first.to_owned()), "after {code:?}");
    }
    key(&mut model, KeyCode::End);
    shown(&mut model);
    typed(&mut model, "/p01");
    assert_eq!(shown(&mut model), (10, "p010".to_owned()), "a filter begins at the top");
}

#[test]
fn no_size_or_name_breaks_a_frame() {
    let mut model = model();
    let long = "日".repeat(5_000);
    let row = json!({ "cells": [long, long, long, long, long, long, long] });
    let table = json!({ "metadata": { "resourceVersion": "x" }, "rows": [row] });
    model.hear(Ok(Answer { pods: cells(table).ok(), ..answer() }), at(6));
    typed(&mut model, "/\u{7}日");
    for view in ['1', '2', '3'] {
        key(&mut model, KeyCode::Enter);
        key(&mut model, KeyCode::Char(view));
        for width in 0..60 {
            for height in 0..20 {
                let text = plain(&mut model, at(7), width, height);
                assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
            }
        }
        plain(&mut model, at(7), 1_000, 1_000);
    }
}
