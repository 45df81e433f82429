//! The attributes of `--extract`, alone and in the usual answers; and waiting for a pod over HTTP.

use super::*;
use crate::support::refused;

const RULES: &str = "
extract:
  metadata: [k8s.pod.name, k8s.namespace.name, k8s.container.name, container.id, k8s.deployment.name]
  labels: [{ key_regex: .*, tag_name: '' }]
  annotations: [{ key_regex: .* }]
";

fn rules(text: &str) -> Directory {
    let directory = Directory::new();
    fs::write(directory.0.join("rules.yaml"), text).unwrap();
    directory
}

fn flag(directory: &Directory) -> String {
    format!("--extract {}/rules.yaml", directory.0.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_have_the_attributes_of_the_rules_and_never_what_may_be_secret() {
    let directory = rules(RULES);
    let setup = Setup::with(&flag(&directory)).await;
    let mut other = pod("other", "node-1", &json!({}));
    other["metadata"]["uid"] = json!("other-uid");
    other["metadata"]["annotations"] =
        json!({ "kubectl.kubernetes.io/last-applied-configuration": "hunter2", "kept": "yes" });
    other["spec"]["containers"] =
        json!([{ "name": "c", "image": "i", "env": [{ "name": "PASSWORD", "value": "hunter2" }] }]);
    let until = |url: &str, name: &str| -> Value {
        let found = |answer: &Value| answer["attributes"].get(name).or(answer.get(name)).is_some();
        let answer =
            setup.agent.until(url, |answer| serde_json::from_str(&answer.body).is_ok_and(|one| found(&one)));
        serde_json::from_str(&answer.body).unwrap()
    };
    let expected = json!({
        "k8s.pod.name": "web-0", "k8s.namespace.name": "shop", "k8s.pod.labels.app": "web", "k8s.pod.labels.tier": "front",
    });
    assert_eq!(until("/whois?q=10.0.0.7", "k8s.pod.name")["attributes"], expected);
    assert_eq!(until("/whois?q=10.0.0.7&fields=attributes", "k8s.pod.name"), expected);
    // Of the container, and of the run that is asked for.
    for (digit, container) in [('a', "nginx"), ('b', "nginx"), ('c', "setup")] {
        let url = format!("/whois?q={}&fields=attributes", id(digit));
        let answer = until(&url, "container.id");
        assert_eq!(
            (&answer["container.id"], &answer["k8s.container.name"]),
            (&json!(id(digit)), &json!(container))
        );
    }
    // Nobody, and no identity: still objects, one a line.
    let answer = setup.agent.get("/whois?q=10.9.9.9&q=%2Fno%2Fpod&fields=attributes");
    assert_eq!(answer.body, "{}\n{}\n");
    let posted = setup.agent.send("POST /whois?fields=attributes", "", "10.0.0.7\nnobody\n");
    assert_eq!(lines(&posted.body), [expected.clone(), json!({})]);

    setup.server.put("pods", &other);
    let answer = until("/whois?q=other-uid&wait=10s", "k8s.pod.name");
    assert_eq!(answer["attributes"]["k8s.pod.annotations.kept"], "yes");
    assert!(!answer["attributes"].to_string().contains("hunter2"), "{answer}");
    let (namespace, name) = (other["metadata"]["namespace"].as_str().unwrap(), "other");
    setup.server.remove("pods", namespace, name);
    setup.agent.until("/whois?q=other-uid", |answer| answer.body.contains("\"removed\""));
    assert_eq!(until("/whois?q=other-uid&fields=attributes", "k8s.pod.name")["k8s.pod.name"], "other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_rule_extracts_what_may_be_secret_with_and_without_redact_env() {
    let directory = rules(RULES);
    for redact in ["", "--redact-env "] {
        let setup = Setup::with(&format!("{redact}{}", flag(&directory))).await;
        let mut discreet = pod("discreet", "node-1", &json!({}));
        discreet["metadata"]["uid"] = json!("discreet-uid");
        discreet["metadata"]["annotations"] = json!({
            "kubectl.kubernetes.io/last-applied-configuration": "{\"password\":\"hunter2\"}", "kept": "yes",
        });
        discreet["spec"]["containers"] = json!([{
            "name": "c", "image": "i", "command": ["run", "hunter2"], "args": ["--password=hunter2"],
            "env": [{ "name": "PASSWORD", "value": "hunter2" }],
        }]);
        setup.server.put("pods", &discreet);
        let answer = setup.agent.get("/whois?q=discreet-uid&fields=attributes&wait=10s");
        assert!(answer.body.contains("\"k8s.pod.annotations.kept\":\"yes\""), "{}", answer.body);
        assert!(!answer.body.contains("hunter2") && !answer.body.contains("PASSWORD"), "{}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_get_waits_for_its_pod_and_not_longer_than_it_says() {
    let setup = Setup::new().await;
    let mut later = pod("later", "node-1", &json!({}));
    later["metadata"]["uid"] = json!("later-uid");
    thread::scope(|scope| {
        let answer = scope.spawn(|| setup.agent.get("/whois?q=later-uid&wait=10s").body);
        thread::sleep(Duration::from_millis(100));
        setup.server.put("pods", &later);
        assert_eq!(lines(&answer.join().unwrap())[0]["name"], "later");
    });
    let began = Instant::now();
    let answer = setup.agent.get("/whois?q=never&wait=300ms");
    assert_eq!(lines(&answer.body)[0]["found"], false);
    assert!(began.elapsed() >= Duration::from_millis(300));
    // A query that waits is one lookup, as often as the agent looks.
    let metrics = setup.agent.get("/metrics").body;
    for outcome in ["found", "unknown"] {
        assert_eq!(
            value(&metrics, &format!("pod_index_lookups_total{{outcome=\"{outcome}\"}}")),
            1,
            "{outcome}"
        );
    }
    for (url, why) in [
        ("/whois?q=a&wait=11s", "wait: at most 10s"),
        ("/whois?q=a&wait=x", "wait must be a number and a unit"),
        ("/whois?q=a&q=b&q=c&q=d&q=e&wait=1s", "wait: at most 4 queries"),
        ("/whois?q=a&details=1", "details: true or false"),
        ("/whois?q=a&fields=name", "fields: attributes can be asked for alone"),
        ("/whois?q=a&fields=attributes", "the agent has no attributes; start it with --extract FILE"),
    ] {
        let answer = setup.agent.get(url);
        assert!(answer.code == 400 && answer.body.contains(why), "{url}: {}", answer.body);
    }
}

#[test]
fn wrong_rules_are_an_error_that_names_the_file_and_the_place() {
    for (text, why) in [
        (
            "extract: { metadata: [k8s.pod.colour] }",
            "extract.metadata[0]: \"k8s.pod.colour\" is not supported",
        ),
        ("extract:\n  labelz: []", "line 2: unknown field `labelz`"),
        (
            "extract: { labels: [{ key: a, from: namespace }] }",
            "a rule needs the namespaces, which the agent follows with --serve-resources namespaces",
        ),
        ("extract: { metadata: [k8s.deployment.uid] }", "a rule needs the owners"),
    ] {
        let directory = rules(text);
        let manifests = directory.0.display();
        refused(&format!("--check --pod-manifest-path {manifests} {}", flag(&directory)), 2, why);
    }
}
