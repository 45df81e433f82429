//! Managers of Secrets and `ConfigMaps` against an API server over real HTTP that counts the watches of each
//! object.

use pod_index_test_support::api_server;

use crate::seeded;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api_server::{ApiServer, DEADLINE, Fault, Key, Verb};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use pod_index::{Operation, PodUid};
use pod_index_kubelet::Pauses;
use pod_index_kubelet::references::{
    ConfigMapManager, GetError, Manager, Object, Options, ReferencedKind, SecretManager, Times, follow,
};
use proptest::prelude::{Just, ProptestConfig, prop_oneof, proptest};
use proptest::strategy::{Strategy, ValueTree};
use seeded::seeded;
use serde_json::{Value, json};

const QUICK: Duration = Duration::from_millis(20);

fn quick() -> Options {
    let times = Times {
        backoff: Pauses::new(QUICK, 4 * QUICK),
        http1_watch: Duration::from_secs(600),
        ..Times::default()
    };
    Options { times, first_sync: DEADLINE, ..Options::default() }
}

/// A server, and a manager that follows it.
async fn started() -> (ApiServer, SecretManager) {
    let server = ApiServer::start().await;
    let secrets = SecretManager::new(server.client(), quick());
    (server, secrets)
}

fn secret(name: &str, value: &str) -> Value {
    object("Secret", name, &json!({ "k": base64(value) }))
}

fn object(kind: &str, name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": kind, "metadata": { "namespace": "ns", "name": name }, "data": data })
}

fn base64(text: &str) -> Value {
    json!(ByteString(text.into()))
}

fn value(secret: &Secret) -> &str {
    std::str::from_utf8(&secret.data.as_ref().unwrap()["k"].0).unwrap()
}

/// A pod of namespace `ns` that names these objects, in different fields.
fn pod(uid: &str, secrets: &[&str], config_maps: &[&str]) -> Pod {
    let env_from: Vec<_> = secrets.iter().map(|name| json!({ "secretRef": { "name": name } })).collect();
    let volumes: Vec<_> = config_maps
        .iter()
        .map(|name| json!({ "name": name, "configMap": { "name": name } }))
        .chain(secrets.iter().map(|name| json!({ "name": name, "secret": { "secretName": name } })))
        .collect();
    let pod = json!({
        "metadata": { "namespace": "ns", "name": uid, "uid": uid },
        "spec": { "containers": [{ "name": "c", "envFrom": env_from }], "volumes": volumes },
    });
    serde_json::from_value(pod).unwrap()
}

fn in_phase(mut pod: Pod, phase: &str) -> Pod {
    pod.status.get_or_insert_default().phase = Some(phase.to_owned());
    pod
}

/// One watch on each of these Secrets.
fn watches(secrets: &[&str]) -> BTreeMap<Key, usize> {
    secrets.iter().map(|name| (Key::new("secrets", "ns", name), 1)).collect()
}

async fn watched(server: &ApiServer, expected: &BTreeMap<Key, usize>) {
    let what = format!("watches on {expected:?}");
    server.until(&what, |server| server.open_watches_by_object() == *expected).await;
}

/// Waits until the manager's copy of a Secret satisfies this. There is no notification, so it polls.
async fn until_cached<K: ReferencedKind>(
    manager: &Manager<K>,
    name: &str,
    mut holds: impl FnMut(Option<&Object<K>>) -> bool,
) {
    let wait = async {
        while !holds(manager.cached("ns", name).as_ref()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let came = tokio::time::timeout(DEADLINE, wait).await;
    assert!(came.is_ok(), "never came: {name}; {:?}", manager.cached("ns", name));
}

#[tokio::test]
async fn an_object_is_watched_once_however_many_pods_name_it_and_not_at_all_after_the_last() {
    let (server, secrets) = started().await;
    secrets.register_pod(&pod("u1", &["a", "b"], &["a"]));
    secrets.register_pod(&pod("u2", &["a"], &[]));
    watched(&server, &watches(&["a", "b"])).await;
    secrets.unregister_pod("u1");
    watched(&server, &watches(&["a"])).await;
    secrets.unregister_pod("u1");
    secrets.register_pod(&pod("u2", &["a", "c"], &[]));
    watched(&server, &watches(&["a", "c"])).await;
    let status = secrets.status();
    assert_eq!((status.pods, status.objects), (1, 2));
    secrets.unregister_pod("u2");
    watched(&server, &watches(&[])).await;
    let begun = server.begun_watches_by_object();
    assert!(begun.values().all(|count| *count == 1), "a watch was interrupted: {begun:?}");
}

#[tokio::test]
async fn a_pod_that_has_ended_needs_nothing() {
    for (before, phase) in [("Running", "Failed"), ("Pending", "Succeeded")] {
        let (server, secrets) = started().await;
        secrets.register_pod(&in_phase(pod("u1", &["a"], &[]), before));
        watched(&server, &watches(&["a"])).await;
        secrets.register_pod(&in_phase(pod("u1", &["a"], &[]), phase));
        watched(&server, &watches(&[])).await;
        secrets.register_pod(&in_phase(pod("u2", &["a"], &[]), phase));
        assert_eq!((secrets.status().pods, secrets.status().objects), (0, 0));
    }
}

#[tokio::test]
async fn with_the_last_handle_of_a_manager_all_watches_end() {
    let (server, secrets) = started().await;
    secrets.register_pod(&pod("u1", &["a", "b"], &[]));
    let other = secrets.clone();
    drop(secrets);
    watched(&server, &watches(&["a", "b"])).await;
    drop(other);
    watched(&server, &watches(&[])).await;
}

#[tokio::test]
async fn a_get_waits_for_the_first_answer_and_then_follows_changes() {
    let server = ApiServer::start().await;
    server.put("secrets", &secret("a", "one"));
    server.fail(Verb::List, Fault::Delay(5 * QUICK));
    let secrets = SecretManager::new(server.client(), quick());
    secrets.register_pod(&pod("u1", &["a"], &[]));
    assert!(secrets.cached("ns", "a").is_none());
    assert_eq!(value(&secrets.get("ns", "a").await.unwrap()), "one");
    server.put("secrets", &secret("a", "two"));
    until_cached(&secrets, "a", |secret| secret.is_some_and(|secret| value(secret) == "two")).await;
    server.remove("secrets", "ns", "a");
    until_cached(&secrets, "a", |secret| secret.is_none()).await;
    let error = secrets.get("ns", "a").await.unwrap_err();
    assert_eq!(error, GetError::NotFound(r#"secret "a" not found"#.to_owned()));
    server.put("secrets", &secret("a", "three"));
    until_cached(&secrets, "a", |secret| secret.is_some_and(|secret| value(secret) == "three")).await;
    assert_eq!(server.requests(Verb::List), 1, "all else came by the watch");
}

#[tokio::test]
async fn an_object_that_no_pod_names_is_not_registered_in_the_kubelets_words() {
    let (server, secrets) = started().await;
    server.put("secrets", &secret("a", "one"));
    secrets.register_pod(&pod("u1", &["other"], &["a"]));
    let error = secrets.get("ns", "a").await.unwrap_err();
    assert_eq!(error, GetError::NotRegistered(r#"object "ns"/"a" not registered"#.to_owned()));
    let elsewhere = secrets.get("elsewhere", "other").await.unwrap_err();
    assert!(matches!(elsewhere, GetError::NotRegistered(_)));
}

#[tokio::test]
async fn invalid_object_names_are_ignored_and_enter_no_path() {
    let (server, secrets) = started().await;
    for name in ["", "../../nodes/n1", "a?watch=true", "a,metadata.name=b", "A"] {
        secrets.register_pod(&pod("u1", &[name], &[]));
        assert_eq!(secrets.status().objects, 0);
        let error = secrets.get("ns", name).await.unwrap_err();
        assert!(matches!(error, GetError::NotRegistered(_)), "{name:?}");
    }
    assert_eq!(Verb::ALL.map(|verb| server.requests(verb)), [0; 6]);
}

#[tokio::test]
async fn a_get_times_out_in_the_kubelets_words_with_the_reason() {
    let server = ApiServer::start().await;
    server.put("configmaps", &object("ConfigMap", "a", &json!({ "k": "v" })));
    server.fail_always(Verb::List, Fault::Status(403));
    let config_maps = ConfigMapManager::new(server.client(), Options { first_sync: 2 * QUICK, ..quick() });
    config_maps.register_pod(&pod("u1", &[], &["a"]));
    server.seen(Verb::List, 2).await;
    let error = config_maps.get("ns", "a").await.unwrap_err();
    let expected = "failed to sync configmap cache: timed out waiting for the condition: planted: 403 (403)";
    assert_eq!(error, GetError::NotSynced(expected.to_owned()));
    server.heal();
    until_cached(&config_maps, "a", |config_map| config_map.is_some()).await;
}

#[tokio::test]
async fn a_waiting_get_ends_when_no_pod_names_its_object_any_more() {
    let server = ApiServer::start().await;
    server.put("secrets", &secret("a", "one"));
    server.fail_always(Verb::List, Fault::Status(403));
    let secrets = SecretManager::new(server.client(), Options { first_sync: 100 * DEADLINE, ..quick() });
    let getting = || {
        let secrets = secrets.clone();
        tokio::spawn(async move { secrets.get("ns", "a").await })
    };
    secrets.register_pod(&pod("u1", &["a"], &[]));
    let got = getting();
    server.seen(Verb::List, 2).await;
    assert_eq!(secrets.status().failing, 1);
    secrets.unregister_pod("u1");
    let error = tokio::time::timeout(DEADLINE, got).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.to_string(), r#"object "ns"/"a" not registered"#);

    // Named again before the waiting task has noticed: it continues to wait, for the new registration.
    secrets.register_pod(&pod("u1", &["a"], &[]));
    let got = getting();
    server.seen(Verb::List, server.requests(Verb::List) + 2).await;
    secrets.unregister_pod("u1");
    secrets.register_pod(&pod("u1", &["a"], &[]));
    server.heal();
    let got = tokio::time::timeout(DEADLINE, got).await.unwrap().unwrap();
    assert_eq!(value(&got.unwrap()), "one");
    assert_eq!(secrets.status().failing, 0);
}

#[tokio::test]
async fn an_immutable_object_stops_its_watch_for_good_and_is_still_there() {
    let server = ApiServer::start().await;
    let mut immutable = secret("a", "one");
    immutable["immutable"] = json!(true);
    server.put("secrets", &immutable);
    server.put("secrets", &secret("later", "one"));
    let secrets = SecretManager::new(server.client(), quick());
    secrets.register_pod(&pod("u1", &["a", "later"], &[]));
    assert_eq!(value(&secrets.get("ns", "a").await.unwrap()), "one");
    watched(&server, &watches(&["later"])).await;
    let mut immutable = secret("later", "two");
    immutable["immutable"] = json!(true);
    server.put("secrets", &immutable);
    watched(&server, &watches(&[])).await;
    // Meanwhile a watch of another object begins, is cut, and begins again.
    server.put("secrets", &secret("other", "one"));
    secrets.register_pod(&pod("u2", &["other"], &[]));
    for version in ["one", "two", "three"] {
        server.put("secrets", &secret("other", version));
        until_cached(&secrets, "other", |secret| secret.is_some_and(|secret| value(secret) == version)).await;
        assert_eq!(value(&secrets.get("ns", "a").await.unwrap()), "one");
        assert_eq!(value(&secrets.get("ns", "later").await.unwrap()), "two");
        server.close_watches();
    }
    watched(&server, &watches(&["other"])).await;
    let begun = server.begun_watches_by_object();
    let begun = ["a", "later"].map(|name| begun.get(&Key::new("secrets", "ns", name)).copied().unwrap_or(0));
    assert_eq!(begun, [0, 1]);
    assert_eq!(secrets.status().synced, 3);
}

#[tokio::test]
async fn an_idle_watch_stops_and_the_next_get_starts_it_again() {
    let server = ApiServer::start().await;
    server.put("secrets", &secret("a", "one"));
    let secrets = SecretManager::new(server.client(), Options { idle: 2 * QUICK, ..quick() });
    secrets.register_pod(&pod("u1", &["a"], &[]));
    for version in ["one", "two", "three"] {
        // Changed while there is no watch: the old version must not be returned.
        server.put("secrets", &secret("a", version));
        assert_eq!(value(&secrets.get("ns", "a").await.unwrap()), version);
        // Requesting the object would keep the watch.
        let idle = async {
            while secrets.status().synced > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, idle).await.is_ok());
        watched(&server, &watches(&[])).await;
        assert!(secrets.cached("ns", "a").is_none());
    }
}

#[tokio::test]
async fn a_watch_survives_all_failures() {
    let (server, secrets) = started().await;
    server.put("secrets", &secret("a", "0"));
    secrets.register_pod(&pod("u1", &["a"], &[]));
    watched(&server, &watches(&["a"])).await;
    let faults: [fn(&ApiServer); 12] = [
        |server| server.close_watches(),
        |server| server.cut_connections(),
        |server| server.expire_watches(),
        |server| server.send_bookmarks(),
        |server| server.fail(Verb::Watch, Fault::CutInEvent(0)),
        |server| server.fail(Verb::Watch, Fault::End(0)),
        |server| server.fail(Verb::Watch, Fault::ErrorEvent(500)),
        |server| server.fail(Verb::Watch, Fault::Garbage),
        |server| server.fail(Verb::Watch, Fault::Status(503)),
        |server| server.fail(Verb::Watch, Fault::TooManyRequests(0)),
        |server| server.fail(Verb::List, Fault::Garbage),
        |server| server.fail(Verb::List, Fault::Drop),
    ];
    for (round, fault) in faults.into_iter().enumerate() {
        fault(&server);
        if round >= 4 {
            // The next watch or the next list meets the planted fault.
            server.expire_watches();
        }
        let version = format!("{}", round + 1);
        server.put("secrets", &secret("a", &version));
        until_cached(&secrets, "a", |secret| secret.is_some_and(|secret| value(secret) == version)).await;
        watched(&server, &watches(&["a"])).await;
    }
    // The server's state goes back, and with it the resource versions.
    let backup = server.backup();
    server.put("secrets", &secret("a", "undone"));
    until_cached(&secrets, "a", |secret| secret.is_some_and(|secret| value(secret) == "undone")).await;
    server.restore(&backup);
    until_cached(&secrets, "a", |secret| secret.is_some_and(|secret| value(secret) == "12")).await;
}

#[tokio::test]
async fn a_server_that_ignores_selectors_cannot_pass_off_one_object_as_another() {
    let server = ApiServer::start().await;
    // If the selector is ignored, a list for another object returns this one as its only item.
    server.put("secrets", &secret("a", "one"));
    server.put("secrets", &secret("b", "two"));
    server.ignore_field_selectors();
    let secrets = SecretManager::new(server.client(), quick());
    secrets.register_pod(&pod("u1", &["b", "missing"], &[]));
    assert_eq!(value(&secrets.get("ns", "b").await.unwrap()), "two");
    assert!(secrets.get("ns", "missing").await.is_err());
    server.put("secrets", &secret("a", "three"));
    server.put("secrets", &secret("b", "four"));
    until_cached(&secrets, "b", |secret| secret.is_some_and(|secret| value(secret) == "four")).await;
    assert!(secrets.cached("ns", "missing").is_none());
}

// ------------------------------------------------------------------------------------------------- random histories

/// One step of a history: a change of a pod or an object.
#[derive(Clone, Debug)]
enum Step {
    /// The pod with the Secrets and `ConfigMaps` it names, and whether it has ended.
    Pod(usize, BTreeSet<usize>, BTreeSet<usize>, bool),
    Gone(usize),
    /// One publication: the first pod is removed, and another one that names the same objects is added.
    Replaced(usize, usize),
    Object(&'static str, usize),
    ObjectGone(&'static str, usize),
}

const PODS: usize = 12;
const OBJECTS: usize = 8;

fn step() -> impl Strategy<Value = Step> {
    use proptest::collection::btree_set;
    let resource = || prop_oneof![Just("secrets"), Just("configmaps")];
    prop_oneof![
        6 => (0..PODS, btree_set(0..OBJECTS, 0..4), btree_set(0..OBJECTS, 0..3), proptest::bool::weighted(0.1))
            .prop_map(|(pod, secrets, config_maps, ended)| Step::Pod(pod, secrets, config_maps, ended)),
        2 => (0..PODS).prop_map(Step::Gone),
        2 => (0..PODS, 0..PODS).prop_map(|(old, new)| Step::Replaced(old, new)),
        2 => (resource(), 0..OBJECTS).prop_map(|(resource, object)| Step::Object(resource, object)),
        1 => (resource(), 0..OBJECTS).prop_map(|(resource, object)| Step::ObjectGone(resource, object)),
    ]
}

/// What a pod names, as given by the step.
type Named = (BTreeSet<usize>, BTreeSet<usize>, bool);

fn name(object: usize) -> String {
    format!("object-{object}")
}

fn named_pod(uid: &str, (secrets, config_maps, ended): &Named) -> Pod {
    let names = |objects: &BTreeSet<usize>| objects.iter().map(|object| name(*object)).collect::<Vec<_>>();
    let (secrets, config_maps) = (names(secrets), names(config_maps));
    let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
    let config_maps: Vec<&str> = config_maps.iter().map(String::as_str).collect();
    in_phase(pod(uid, &secrets, &config_maps), if *ended { "Succeeded" } else { "Running" })
}

/// Runs a history through an index and both managers. After every step the server's open watches are exactly
/// the model's: one for each object that a running pod names. Returns the number of steps that changed them.
async fn run(steps: impl IntoIterator<Item = Step>) -> (usize, u64) {
    let server = ApiServer::start().await;
    let (mut writer, reader) = pod_index::new::<Pod>();
    let secrets = SecretManager::new(server.client(), quick());
    let config_maps = ConfigMapManager::new(server.client(), quick());
    let managers = (secrets.clone(), config_maps.clone());
    let following = tokio::spawn(follow(reader.changes(), move |changes| {
        managers.0.apply(changes);
        managers.1.apply(changes);
    }));

    let mut model: BTreeMap<usize, Named> = BTreeMap::new();
    let mut expected = BTreeMap::new();
    let mut begun: BTreeMap<Key, u64> = BTreeMap::new();
    let (mut changed, mut version) = (0, 0);
    for step in steps {
        match step {
            Step::Pod(number, secrets, config_maps, ended) => {
                let named = (secrets, config_maps, ended);
                writer.upsert_pod(named_pod(&format!("u{number}"), &named)).unwrap();
                model.insert(number, named);
            }
            Step::Gone(number) => {
                writer.remove_pod_by_uid(&*format!("u{number}"));
                model.remove(&number);
            }
            Step::Replaced(old, new) => {
                let Some(named) = model.remove(&old) else { continue };
                let applied = writer.apply([
                    Operation::Remove(PodUid::from(&*format!("u{old}"))),
                    Operation::Upsert(named_pod(&format!("u{new}"), &named).into()),
                ]);
                assert_eq!(applied.refused, []);
                model.insert(new, named);
            }
            Step::Object(resource, number) => {
                version += 1;
                let data = json!({ "k": if resource == "secrets" { base64(&version.to_string()) } else { json!(version.to_string()) } });
                let kind = if resource == "secrets" { "Secret" } else { "ConfigMap" };
                server.put(resource, &object(kind, &name(number), &data));
            }
            Step::ObjectGone(resource, number) => {
                server.remove(resource, "ns", &name(number));
            }
        }
        let mut now = BTreeMap::new();
        for (secrets, config_maps, _) in model.values().filter(|(_, _, ended)| !ended) {
            now.extend(secrets.iter().map(|object| (Key::new("secrets", "ns", &name(*object)), 1)));
            now.extend(config_maps.iter().map(|object| (Key::new("configmaps", "ns", &name(*object)), 1)));
        }
        for key in now.keys().filter(|key| !expected.contains_key(*key)) {
            *begun.entry(key.clone()).or_default() += 1;
        }
        changed += usize::from(now != expected);
        expected = now;
        watched(&server, &expected).await;
    }
    // Objects in memory equal the server's.
    for key in expected.keys() {
        let truth = server
            .object(&key.resource, "ns", &key.name)
            .map(|object| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned());
        if key.resource == "secrets" {
            until_cached(&secrets, &key.name, |secret| {
                secret.map(|secret| secret.metadata.resource_version.clone().unwrap()) == truth
            })
            .await;
        } else {
            until_cached(&config_maps, &key.name, |map| {
                map.map(|map| map.metadata.resource_version.clone().unwrap()) == truth
            })
            .await;
        }
    }
    let total = begun.values().sum();
    assert_eq!(server.begun_watches_by_object(), begun, "a watch was opened that need not have been");
    let _ = writer.set_pods(Vec::<Pod>::new());
    watched(&server, &BTreeMap::new()).await;
    // Without an open watch the server reveals nothing, so the managers are asked.
    let left = || {
        let (secrets, config_maps) = (secrets.status(), config_maps.status());
        [secrets.pods, secrets.objects, config_maps.pods, config_maps.objects]
    };
    let wait = async {
        while left() != [0; 4] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, wait).await.is_ok(), "still there: {:?}", left());
    following.abort();
    (changed, total)
}

fn on_a_runtime<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_time: 30_000, ..seeded(12) })]

    #[test]
    fn in_any_history_exactly_one_watch_is_open_for_each_object_that_a_living_pod_names(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        on_a_runtime(run(steps));
    }
}

/// One long history:
/// `cargo test -p pod-index-kubelet --all-features --test kubelet -- --ignored --nocapture ten_thousand`
#[test]
#[ignore = "takes a minute: .ci/run figures"]
fn a_history_of_ten_thousand_steps_ends_without_a_watch_too_many_or_too_few_at_any_step() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let steps = proptest::collection::vec(step(), 10_000).new_tree(&mut runner).unwrap().current();
    let (changed, begun) = on_a_runtime(run(steps));
    println!(
        "10000 steps, {changed} of them changed what is watched; {begun} watches were opened, none is left"
    );
}
