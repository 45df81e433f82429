//! The dashboard and the alerts in `deploy/`: they use only existing metrics, and all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::metrics::{OF_TLS, agent_with_everything, families};
use crate::support::{Directory, REFERENCE, table};

fn deployed(path: &str) -> String {
    fs::read_to_string(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("deploy").join(path))
        .unwrap()
}

fn dashboard() -> Value {
    serde_json::from_str(&deployed("grafana/pod-index.json")).unwrap()
}

fn panels(dashboard: &Value) -> &Vec<Value> {
    dashboard["panels"].as_array().unwrap()
}

fn targets(dashboard: &Value) -> Vec<&Value> {
    panels(dashboard).iter().filter_map(|panel| panel["targets"].as_array()).flatten().collect()
}

/// The rules of the alerts, and those for their expressions.
fn rules() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&deployed("prometheus/rules.yaml")).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The alerts, one map each.
fn alerts() -> Vec<Value> {
    rules().into_iter().filter(|rule| !rule["alert"].is_null()).collect()
}

/// The names of metrics in an expression.
fn metrics(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| ["pod_index_", "process_"].iter().any(|prefix| word.starts_with(prefix)))
}

/// The family that a sample's name belongs to, by the family's type.
fn family<'a>(families: &BTreeMap<&'a str, &str>, sample: &str) -> Option<&'a str> {
    let endings = |kind: &str| match kind {
        "counter" => &["_total"][..],
        "histogram" => &["_bucket", "_sum", "_count"],
        _ => &[""],
    };
    let is = |name: &str, kind: &str| endings(kind).iter().any(|ending| sample == format!("{name}{ending}"));
    families.iter().find(|(name, kind)| is(name, kind)).map(|(name, _)| *name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_that_is_asked_for_is_there_and_every_one_that_is_there_is_shown() {
    let directory = Directory::new();
    let (agent, _server) = agent_with_everything(&directory).await;
    let text = agent.get("/metrics").body;
    let mut families = families(&text);
    families.extend(OF_TLS.map(|name| (name, "gauge")));

    let dashboard = dashboard();
    let shown = targets(&dashboard).into_iter().map(|target| target["expr"].as_str().unwrap().to_owned());
    let shown: Vec<String> = shown.collect();
    let alerted: Vec<String> = rules().iter().map(|rule| rule["expr"].as_str().unwrap().to_owned()).collect();
    for expression in shown.iter().chain(&alerted) {
        // These are Prometheus' and the cluster's own metrics.
        let of_others = expression.contains("up{") || expression.contains("kube_");
        let is_recorded = rules().iter().any(|rule| rule["record"] == **expression);
        assert!(of_others || is_recorded || metrics(expression).count() > 0, "{expression}");
        for metric in metrics(expression) {
            assert!(family(&families, metric).is_some(), "there is no {metric}: {expression}");
        }
    }
    let shown: BTreeSet<_> = shown
        .iter()
        .flat_map(|expression| metrics(expression))
        .filter_map(|metric| family(&families, metric))
        .collect();
    let left_out: Vec<_> = families.keys().copied().filter(|name| !shown.contains(name)).collect();
    assert_eq!(left_out, [""; 0], "what the dashboard does not show");
}

#[test]
fn the_dashboard_is_one_that_grafana_can_draw() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 41);
    assert_eq!((&dashboard["uid"], &dashboard["title"]), (&"pod-index".into(), &"pod-index".into()));
    assert_eq!(dashboard.get("id"), None, "the importing Grafana assigns one");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(variables, ["datasource", "job", "instance"]);

    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its number is another's");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title} sticks out");
        for cell in
            (at("y")..at("y") + at("h")).flat_map(|y| (at("x")..at("x") + at("w")).map(move |x| (x, y)))
        {
            assert!(cells.insert(cell), "{title} overlaps another panel");
        }
        let kind = panel["type"].as_str().unwrap();
        assert!(["row", "stat", "bargauge", "timeseries"].contains(&kind), "{title}: {kind}");
        // Grafana's type for the options of a time series requires the list.
        assert_eq!(kind == "timeseries", panel["options"]["legend"]["calcs"].is_array(), "{title}");
        // With more points, a graph of 2,000 agents takes Prometheus seconds.
        assert_eq!(kind == "timeseries", panel["interval"] == "1m", "{title}");
        let asks = panel["targets"].as_array().map_or(0, Vec::len);
        assert_eq!(asks == 0, kind == "row", "{title}");
    }
    for target in targets(&dashboard) {
        assert_eq!(target["datasource"]["uid"], "${datasource}", "{target}");
        let expression = target["expr"].as_str().unwrap();
        assert!(
            expression.contains(r#"{job=~"$job",instance=~"$instance""#),
            "{expression}: not limited to one agent"
        );
    }
}

/// With 2,000 agents, a line for each would hide all of them, and a browser could not draw it.
#[test]
fn no_panel_draws_a_line_or_a_bar_for_each_agent() {
    const ONE_VALUE: [&str; 7] = ["sum", "max", "min", "count", "quantile", "histogram_quantile", "topk"];
    for panel in panels(&dashboard()) {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            // The age of the one time that is chosen.
            let aggregate = expression.trim_start_matches("time() - ").trim_start_matches('(');
            let function = aggregate.split([' ', '(']).next().unwrap();
            assert!(ONE_VALUE.contains(&function), "{expression}: not aggregated");
            // `topk` over a range draws a line for each agent that was ever among the first.
            let of_the_worst = function == "topk" && target["instant"] == true;
            assert!(of_the_worst || !expression.contains("by (instance"), "{expression}");
            assert_eq!(of_the_worst, panel["type"] == "bargauge", "{expression}");
        }
    }
}

#[test]
fn every_alert_has_a_severity_and_a_runbook() {
    let mut names = BTreeSet::new();
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        assert!(name.starts_with("PodIndex") && names.insert(name.to_owned()), "{name}");
        assert!(["warning", "critical"].contains(&alert["labels"]["severity"].as_str().unwrap()), "{name}");
        for annotation in ["summary", "runbook"] {
            assert!(
                alert["annotations"][annotation].as_str().is_some_and(|text| text.len() > 10),
                "{name}: {annotation}"
            );
        }
    }
    assert!(names.len() > 10);
}

/// CI runs the tests of the rules with promtool.
#[test]
fn every_alert_has_a_test_in_which_it_fires() {
    let tests = deployed("prometheus/rules.test.yaml");
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        assert!(tests.contains(&format!(r#"{{labels: '{{alertname="{name}"}}', value: "#)), "{name}");
    }
}

#[test]
fn the_reference_describes_every_alert() {
    let said = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rules = alerts()
        .into_iter()
        .map(|alert| [format!("`{}`", said(&alert["alert"])), said(&alert["labels"]["severity"])]);
    let rows = table(REFERENCE, "| alert | severity |").into_iter().map(|cells| {
        assert!(cells[2].len() > 10, "{cells:?}");
        [cells[0].to_owned(), cells[1].to_owned()]
    });
    assert_eq!(rows.collect::<Vec<_>>(), rules.collect::<Vec<_>>());
}
