//! `deploy/`: no more rights than the agent uses, and flags and keys that it knows.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Namespace, Pod, PodSpec, ServiceAccount};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int;
use serde_json::{Value, json};

use crate::api_server::{ApiServer, shipped};
use crate::health::health_address;
use crate::kustomize::{base, beside_each_other, components, daemonset, deploy, known, objects, rendered};
use crate::support::{Agent, Directory, binary, get, stderr, stdout, succeeded};
use crate::tls::Authority;

fn pod(daemonset: DaemonSet) -> PodSpec {
    daemonset.spec.template.spec.unwrap()
}

/// The container's environment on the node `node-7`. Mounted files are in this directory.
fn environment(container: &Container, directory: &Directory) -> BTreeMap<String, String> {
    let here = directory.0.display().to_string();
    let mounts: Vec<_> = container.volume_mounts.iter().flatten().map(|mount| &*mount.mount_path).collect();
    let variables = container.env.clone().unwrap().into_iter();
    variables
        .map(|variable| {
            let is_node = variable.name == "POD_INDEX_HOSTNAME_OVERRIDE";
            assert_eq!(variable.value_from.is_some(), is_node, "{}", variable.name);
            let value = variable.value.unwrap_or_else(|| "node-7".to_owned());
            let at = mounts.iter().find(|at| value.starts_with(**at));
            let value = at.map_or(value.clone(), |at| value.replacen(at, &here, 1));
            (variable.name, value)
        })
        .collect()
}

#[test]
fn the_daemonset_runs_with_no_more_than_it_needs() {
    let rights = shipped("pod-index", &["base", "components/mirror-pods"]);
    let rights: Vec<_> = rights.iter().map(|right| (&*right.group, &*right.resource, &*right.verb)).collect();
    assert_eq!(rights, [("", "pods", "list"), ("", "pods", "watch")]);

    let pod = pod(base());
    assert_eq!(pod.priority_class_name.as_deref(), Some("system-node-critical"));
    assert_eq!(pod.service_account_name.as_deref(), Some("pod-index"));
    for volume in pod.volumes.iter().flatten() {
        assert!(volume.host_path.is_none(), "{}: nothing of the host's", volume.name);
    }
    let security = serde_json::to_value(pod.security_context).unwrap();
    let rules = json!([security["runAsNonRoot"], security["seccompProfile"]["type"]]);
    assert_eq!(rules, json!([true, "RuntimeDefault"]));
    let [container] = pod.containers.as_slice() else { panic!("one container") };
    let restricted = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
    });
    assert_eq!(serde_json::to_value(&container.security_context).unwrap(), restricted);
}

/// Whoever stops a roll-out sets `OnDelete` by hand. kubectl and Helm set back only what a manifest names.
#[test]
fn the_daemonset_names_its_update_strategy_and_the_page_of_upgrades_sets_it_again() {
    let strategy = serde_json::to_value(base().spec.update_strategy).unwrap();
    assert_eq!(strategy, json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "10%" } }));
    let page = std::fs::read_to_string(deploy("upgrades.md")).unwrap();
    let patches = page
        .lines()
        .filter_map(|line| line.trim().strip_prefix("kubectl -n pod-index patch daemonset pod-index -p '"));
    let patches = patches.map(|patch| patch.strip_suffix('\'').unwrap());
    let strategies: Vec<_> = patches
        .map(|patch| serde_json::from_str::<Value>(patch).unwrap()["spec"]["updateStrategy"].take())
        .collect();
    let stopped = json!({ "type": "OnDelete" });
    assert_eq!(strategies, [stopped, strategy.clone(), strategy], "to stop, to go on, to go back");
}

/// An alert fires at 90 % of the limit, so the measured memory must stay below that.
#[test]
fn the_daemonsets_memory_limit_is_above_what_was_measured_with_a_thousand_pods() {
    let pod = pod(base());
    let resources = pod.containers[0].resources.as_ref().unwrap();
    let limit = resources.limits.as_ref().unwrap()["memory"].0.strip_suffix("Mi").unwrap();
    let guide = include_str!("../../../docs/operators.md");
    assert!(guide.contains(&format!("The DaemonSet's limit of {limit} MiB")), "{limit} MiB");
    let row = include_str!("../../../docs/reference.md")
        .lines()
        .find(|line| line.starts_with("| 1,000 | "))
        .unwrap();
    let most = row.split(" | ").nth(2).unwrap().strip_suffix(" MB |").unwrap();
    let (limit, most) = (limit.parse::<f64>().unwrap(), most.parse::<f64>().unwrap());
    assert!(most * 1e6 < limit * 1_048_576.0 * 0.9, "{row}");
}

#[test]
fn all_files_name_the_same_user_and_builder() {
    let text = |path: &str| std::fs::read_to_string(deploy(path)).unwrap();
    let dockerfile = text("Dockerfile");
    let user = dockerfile.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    let (user, group) = user.split_once(':').unwrap();
    assert_eq!(user, group);
    let security = pod(base()).security_context.unwrap();
    let number = user.parse().ok();
    assert_eq!((security.run_as_user, security.run_as_group), (number, number));
    for (path, expected) in [
        ("README.md", format!("supplementalGroups: [{user}]")),
        ("README.md", format!("agent's user, {user},")),
        ("kubernetes/components/socket/daemonset.yaml", format!("the group {user}")),
        (
            "kubernetes/components/socket/daemonset.yaml",
            format!("own group in both cases, {user}, which is the clients'"),
        ),
        ("README.md", format!("runs as user {user}")),
    ] {
        assert!(text(path).contains(&expected), "{path} lacks {expected:?}");
    }

    let image = dockerfile.split_whitespace().find(|word| word.starts_with("rust:") && word.contains('@'));
    let image = image.expect("a digest: a tag can change");
    assert!(text("../.github/workflows/release.yml").contains(&format!("container: {image}\n")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_knows_the_flags_variables_and_keys_that_it_is_started_with() {
    let server = ApiServer::start().await;
    let directory = Directory::new();
    let kubeconfig = crate::api::kubeconfig(&directory, &server);
    let container = pod(base()).containers.remove(0);
    let args = container.args.as_ref().unwrap();
    let mut command = binary(&[&args[..], &["--check".to_owned()]].concat());
    command.envs(environment(&container, &directory)).env("KUBECONFIG", &kubeconfig);
    let output = succeeded(command.output().unwrap());
    let said = stdout(&output);
    assert!(
        said.contains("node-7") && said.contains("apiServer") && !said.contains("allNodes"),
        "pods of this node: {said}"
    );

    // As in /etc/pod-index, except for the manifest directory, which this machine may not have.
    let config = directory.0.join("config.yaml");
    let (text, unit) = [deploy("systemd/config.yaml"), deploy("systemd/pod-index.service")]
        .map(|path| std::fs::read_to_string(path).unwrap())
        .into();
    let credential = "/run/credentials/pod-index.service/pod-index.kubeconfig";
    assert!(text.contains(credential) && unit.contains("\nLoadCredential=pod-index.kubeconfig\n"));
    // The service stores all pods, without passwords, in the only directory that the unit can write to: after a reboot it
    // answers from there.
    let kept = directory.0.join("kept");
    assert!(
        text.contains("\ncheckpointDir: /var/lib/pod-index\n")
            && unit.contains("\nStateDirectory=pod-index\n")
    );
    let text = text
        .replace(credential, &kubeconfig)
        .replace("/var/lib/pod-index\n", &format!("{}\n", kept.display()));
    std::fs::write(&config, text).unwrap();
    let manifests = directory.0.to_str().unwrap();
    let args = ["--config", config.to_str().unwrap(), "--check", "--pod-manifest-path", manifests];
    let output = succeeded(binary(&args).output().unwrap());
    let said = stdout(&output);
    assert!(!said.contains("manageMirrorPods"), "beside a kubelet: {said}");
    for setting in ["checkpointAllPods", "redactEnv", kept.to_str().unwrap()] {
        assert!(said.contains(setting), "{setting} is not in {said}");
    }
    assert!(unit.contains("\nExecStart=/usr/local/bin/pod-index --config /etc/pod-index/config.yaml\n"));

    // As the file says for a node without a kubelet.
    let text = std::fs::read_to_string(&config).unwrap();
    let lines = ["staticPodPath: /etc/kubernetes/manifests\n", "manageMirrorPods: true\n"];
    let text = lines.into_iter().fold(text, |text, line| {
        assert!(text.contains(&format!("\n# {line}")), "{line}");
        text.replace(&format!("# {line}"), line)
    });
    std::fs::write(&config, &text).unwrap();
    let output = succeeded(binary(&args).output().unwrap());
    let said = stdout(&output);
    assert!(said.contains("manageMirrorPods"), "unless there is a kubelet: {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: .ci/run deploy"]
async fn with_all_components_the_agent_has_the_function_of_each() {
    let server = ApiServer::start().await;
    let (directory, ours, clients) = (Directory::new(), Authority::new(), Authority::new());
    let (certificate, key) = ours.sign("pod-index");
    for (file, text) in [("tls.crt", &certificate), ("tls.key", &key), ("ca.crt", &clients.pem)] {
        directory.write(file, text);
    }
    let container = pod(daemonset(&beside_each_other())).containers.remove(0);
    let mut command = binary(&["--api-server", "--check"]);
    command.envs(environment(&container, &directory));
    let output =
        succeeded(command.env("KUBECONFIG", crate::api::kubeconfig(&directory, &server)).output().unwrap());
    let text = stdout(&output);
    let here = directory.0.display().to_string();
    for (setting, value) in [
        ("kubelet", "https://127.0.0.1:10250"),
        ("checkpointDir", &*here),
        ("address", "0.0.0.0"),
        ("port", "10270"),
        ("tlsCertFile", "/tls.crt"),
        ("socket", &format!("{here}/pod-index.sock")),
        ("authentication.webhook.enabled", "true"),
        ("authorization.mode", "Webhook"),
        ("healthAddress", "127.0.0.1:10271"),
        ("metricsAddress", "0.0.0.0:10272"),
    ] {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(setting));
        assert!(line.is_some_and(|line| line.contains(value)), "{setting}: {text}");
    }
}

/// The directory is root's, and nothing in it is the agent's to change.
#[test]
#[ignore = "needs kubectl: .ci/run deploy"]
fn the_kubelets_socket_is_read_as_root_from_a_read_only_directory() {
    let pod = pod(daemonset(&["kubelet-socket"]));
    assert_eq!(pod.security_context.as_ref().unwrap().run_as_user, Some(0));
    let container = &pod.containers[0];
    let capabilities = container.security_context.as_ref().unwrap().capabilities.as_ref().unwrap();
    assert_eq!(
        (capabilities.drop.as_deref(), capabilities.add.as_deref()),
        (Some(&["ALL".to_owned()][..]), None)
    );
    let mount =
        container.volume_mounts.iter().flatten().find(|mount| mount.mount_path.ends_with("/pods-api"));
    assert_eq!(mount.unwrap().read_only, Some(true));
}

/// A token that is not there cannot be stolen. The other components ask the API server or the kubelet with it.
#[test]
#[ignore = "needs kubectl: .ci/run deploy"]
fn only_an_agent_that_asks_no_api_server_is_without_a_token() {
    for component in components() {
        let pod = pod(daemonset(&[&component]));
        let asks = pod.containers[0].args.iter().flatten().any(|arg| arg == "--api-server");
        assert_eq!(asks, component != "kubelet-socket");
        assert_eq!(pod.automount_service_account_token, Some(asks), "{component}");
    }
}

/// Prometheus finds the agents by their labels and their port.
#[test]
#[ignore = "needs kubectl: .ci/run deploy"]
fn both_scrape_configurations_find_the_port_of_the_metrics() {
    let daemonset = daemonset(&["pod-monitor"]);
    let labels = daemonset.spec.template.metadata.as_ref().unwrap().labels.clone().unwrap();
    let objects = rendered(&["pod-monitor"]);
    let monitor = &objects.iter().find(|object| object["kind"] == "PodMonitor").unwrap()["spec"];
    let endpoint = &monitor["podMetricsEndpoints"][0];
    assert_eq!(monitor["selector"]["matchLabels"], json!(labels));
    let container = pod(daemonset).containers.remove(0);
    let port = container.ports.as_ref().unwrap().iter().find(|port| port.name.as_deref() == Some("metrics"));
    let port = port.unwrap();
    assert_eq!((port.host_ip.as_ref(), port.host_port), (None, Some(port.container_port)));
    let address = format!("0.0.0.0:{}", port.container_port);
    let variables = container.env.unwrap();
    let variable = variables.iter().find(|variable| variable.value.as_ref() == Some(&address));
    assert_eq!(variable.map(|variable| &*variable.name), Some("POD_INDEX_METRICS_ADDRESS"));
    // The document gives the same to a Prometheus without the operator.
    let entry = format!(r#"{{name: POD_INDEX_METRICS_ADDRESS, value: "{address}"}}"#);
    assert_eq!(include_str!("../../../deploy/README.md").matches(&entry).count(), 2);

    let scrape = &crate::kustomize::objects(&deploy("prometheus/scrape.yaml"))[0]["scrape_configs"][0];
    assert_eq!((&endpoint["scheme"], &scrape["scheme"]), (&"http".into(), &"http".into()));
    assert_eq!(endpoint["port"], "metrics");
    // Without the operator, nothing but the variable opens the port: the pod has no port of that name.
    let [kept, address, _] = &scrape["relabel_configs"].as_array().unwrap()[..] else { panic!("{scrape}") };
    let base = pod(crate::kustomize::base()).containers.remove(0).ports.unwrap();
    assert_eq!(base.iter().filter(|port| port.name.as_deref() == kept["regex"].as_str()).count(), 1);
    assert_eq!(address["replacement"], format!("$1:{}", port.container_port));
    assert_eq!(address["target_label"], "__address__");
    let relabeled = |rules: &serde_json::Value, from: &str, to: &str| {
        let rules = rules.as_array().unwrap().iter();
        rules.map(|rule| (rule[from][0].clone(), rule[to].clone())).next_back().unwrap()
    };
    assert_eq!(
        relabeled(&endpoint["relabelings"], "sourceLabels", "targetLabel"),
        relabeled(&scrape["relabel_configs"], "source_labels", "target_label")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: .ci/run deploy"]
async fn with_tls_the_daemonset_serves_only_clients_with_a_certificate() {
    let server = ApiServer::start().await;
    server.grant(shipped("pod-index", &["base"]));
    let (directory, ours, clients) = (Directory::new(), Authority::new(), Authority::new());
    let mut pod = pod(daemonset(&["tls"]));
    let container = pod.containers.remove(0);
    let volumes = pod.volumes.unwrap();
    let secret = volumes.iter().find(|volume| volume.secret.is_some()).unwrap();
    let mounts = container.volume_mounts.as_ref().unwrap();
    assert!(mounts.iter().any(|mount| mount.name == secret.name && mount.read_only == Some(true)));

    // As deploy/README.md says.
    let name = "pod-index";
    let (certificate, key) = ours.sign(name);
    let me = clients.sign("me");
    for (file, text) in [
        ("tls.crt", &certificate),
        ("tls.key", &key),
        ("ca.crt", &clients.pem),
        ("ours.crt", &ours.pem),
        ("me.crt", &me.0),
        ("me.key", &me.1),
    ] {
        directory.write(file, text);
    }
    let mut environment = environment(&container, &directory);
    // On a free port.
    let health = environment.insert("POD_INDEX_HEALTH_ADDRESS".to_owned(), "127.0.0.1:0".to_owned());
    let args = container.args.as_ref().unwrap();
    let mut command = binary(&args.iter().map(String::as_str).collect::<Vec<_>>());
    command.envs(&environment).env("KUBECONFIG", crate::api::kubeconfig(&directory, &server));
    let agent = Agent::spawn(command);
    assert!(agent.address.ip().is_unspecified(), "{}", agent.address);

    // The kubelet's probes have no certificate, so they use the address that needs none.
    let probed = health_address(&agent);
    agent.wait_for_log("ready: the pods");
    for (probe, path) in [(&container.liveness_probe, "/livez"), (&container.readiness_probe, "/readyz")] {
        let asked = probe.as_ref().unwrap().http_get.as_ref().unwrap();
        let Int(port) = asked.port else { panic!("a number") };
        assert_eq!(health.as_deref(), Some(&*format!("{}:{port}", asked.host.as_ref().unwrap())));
        assert_eq!((asked.path.as_deref(), asked.scheme.as_deref()), (Some(path), None));
        assert_eq!(get(probed, path).code, 200, "{path}");
    }

    // Inside the container, and through a port opened by `kubectl port-forward`.
    let port = agent.port();
    let at = |file: &str| directory.0.join(file).display().to_string();
    let trust =
        format!("get u --port {port} --certificate-authority {} --tls-server-name {name}", at("ours.crt"));
    let show = format!("{trust} --client-certificate {} --client-key {}", at("me.crt"), at("me.key"));
    for environment in [environment, BTreeMap::new()] {
        let code = |args: &str| binary(args).envs(&environment).output().unwrap().status.code();
        assert_eq!(code(&show), Some(1), "the agent answers that it has no such pod");
        assert_eq!(code(&trust), Some(3), "no agent answers without the certificate");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemonset_stores_all_pods_in_a_volume_that_the_kubelet_creates() {
    let server = ApiServer::start().await;
    let directory = Directory::new();
    let mut pod = pod(base());
    let container = pod.containers.remove(0);
    let [mounted] = container.volume_mounts.as_deref().unwrap() else { panic!("one mount") };
    let volume = pod.volumes.unwrap().remove(0);
    assert_eq!((&mounted.name, mounted.read_only), (&volume.name, None));
    assert!(volume.empty_dir.is_some(), "{volume:?}");
    let mut command = binary(&["--api-server", "--check"]);
    command.envs(environment(&container, &directory));
    let output =
        succeeded(command.env("KUBECONFIG", crate::api::kubeconfig(&directory, &server)).output().unwrap());
    let text = stdout(&output);
    let line = text.lines().find(|line| line.starts_with("checkpointDir")).unwrap();
    assert!(line.contains(directory.0.to_str().unwrap()) && text.contains("checkpointAllPods"), "{text}");
}

/// Each directory of a node that is mounted for writing must be created and owned by the agent's user before the agent starts.
#[test]
#[ignore = "needs kubectl: .ci/run deploy"]
fn the_daemonset_prepares_every_directory_that_it_mounts_from_the_node() {
    let pod = pod(daemonset(&beside_each_other()));
    let user = pod.security_context.as_ref().unwrap().run_as_user.unwrap();
    let mounted = pod.volumes.iter().flatten().filter(|volume| volume.host_path.is_some());
    let mut directories = 0;
    for volume in mounted {
        let host = volume.host_path.as_ref().unwrap();
        assert_eq!(host.type_.as_deref(), Some("DirectoryOrCreate"), "{}", host.path);
        let owned = pod.init_containers.iter().flatten().any(|container| {
            let mounts = container.volume_mounts.iter().flatten();
            let at = mounts.filter(|mount| mount.name == volume.name).map(|mount| &mount.mount_path);
            let command = container.command.as_ref().unwrap().join(" ");
            at.into_iter().any(|at| {
                command == format!("chown {user}:{user} {at}") || command == for_root_and_for(WRITERS, at)
            })
        });
        assert!(owned, "{}", host.path);
        directories += 1;
    }
    assert_eq!(directories, 2);
}

/// The group that may write to the directory of the agent's socket. No client has it.
const WRITERS: i64 = 10271;

/// Prepares a directory in which the agent may create its socket with this group, and as root without capabilities.
fn for_root_and_for(group: i64, directory: &str) -> String {
    format!("sh -c chown 0:{group} {directory} && chmod 0775 {directory}")
}

/// With the kubelet's socket the agent runs as root without capabilities, which may not write to another user's directory. A client has
/// the socket's group, and may not write there: it could put a socket of its own in the place of the agent's.
#[test]
#[ignore = "needs kubectl: .ci/run deploy"]
fn the_directory_of_the_agents_socket_is_right_for_the_agents_user_and_for_root() {
    let user = pod(base()).security_context.unwrap().run_as_user.unwrap();
    for components in [&["socket"][..], &["socket", "kubelet-socket"]] {
        let pod = pod(daemonset(components));
        let [container] = pod.init_containers.as_deref().unwrap() else { panic!("one init container") };
        let command = container.command.as_ref().unwrap().join(" ");
        assert_eq!(command, for_root_and_for(WRITERS, "/run/pod-index"), "{components:?}");
        let security = pod.security_context.as_ref().unwrap();
        assert_eq!(security.supplemental_groups, Some(vec![WRITERS]), "{components:?}");
        // The socket's group, which clients have.
        assert_eq!(security.run_as_group, Some(user), "{components:?}");
    }
}

/// The kubelet makes an `emptyDir` that every user may write to, and the agent warns of such a directory. Nobody in the pod could
/// change its mode.
#[test]
#[ignore = "needs kubectl: .ci/run deploy"]
fn checkpoints_are_in_a_directory_that_the_agent_makes_below_the_volume() {
    for components in [&[][..], &["node-checkpoints"], &["kubelet-socket"]] {
        let container = pod(daemonset(components)).containers.remove(0);
        let volumes = container.volume_mounts.unwrap();
        let mount = volumes.iter().find(|mount| mount.name == "checkpoints").unwrap();
        let variables = container.env.unwrap();
        let variable = variables.iter().find(|variable| variable.name == "POD_INDEX_CHECKPOINT_DIR").unwrap();
        let directory = Path::new(variable.value.as_ref().unwrap());
        assert_eq!(directory.parent(), Some(Path::new(&mount.mount_path)), "{components:?}");
    }
}

/// A rollout replaces the pod, and what is in its own volumes is gone. While the API server is away, the new one has nothing
/// but the node's directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl: .ci/run deploy"]
async fn checkpoints_on_the_node_outlive_the_pod_of_the_agent() {
    let server = ApiServer::start().await;
    server.put("pods", &crate::api::pod("web", "node-7", &json!({})));
    // Each pod has directories of its own, and the node's are there for all.
    let on_the_node = Directory::new();
    let start = |components: &[&str]| {
        let pod = pod(daemonset(components));
        let container = &pod.containers[0];
        let volumes = pod.volumes.as_deref().unwrap();
        let volume = volumes.iter().find(|volume| volume.name == "checkpoints").unwrap();
        assert_ne!(volume.empty_dir.is_some(), volume.host_path.is_some(), "{volume:?}");
        let (kubeconfig, own) = (Directory::new(), Directory::new());
        let directory = if volume.host_path.is_some() { &on_the_node } else { &own };
        let mut command = binary(&container.args.as_ref().unwrap()[..]);
        command.envs(environment(container, directory));
        command.env("KUBECONFIG", crate::api::kubeconfig(&kubeconfig, &server));
        (Agent::spawn(command), kubeconfig, own)
    };
    for (components, is_known) in [(&[][..], false), (&["node-checkpoints"], true)] {
        server.accept_again().await;
        let (mut old, ..) = start(components);
        old.has("/pods/default/web");
        old.end();
        server.refuse();
        let (new, ..) = start(components);
        let code = if is_known { 200 } else { 404 };
        assert_eq!(new.get("/pods/default/web").code, code, "{components:?}");
    }
}

#[test]
fn the_daemonset_leaves_virtual_nodes_out() {
    let affinity = pod(base()).affinity.unwrap().node_affinity.unwrap();
    let terms = affinity.required_during_scheduling_ignored_during_execution.unwrap().node_selector_terms;
    let [term] = terms.as_slice() else { panic!("one term: terms are alternatives") };
    let left_out = term.match_expressions.iter().flatten().map(|expression| {
        assert_eq!(expression.operator, "NotIn");
        (&*expression.key, expression.values.as_deref().unwrap())
    });
    assert_eq!(
        left_out.collect::<Vec<_>>(),
        [
            ("type", &["virtual-kubelet".to_owned()][..]),
            ("eks.amazonaws.com/compute-type", &["fargate".to_owned()][..])
        ]
    );
}

#[test]
#[ignore = "needs kubectl: .ci/run deploy"]
fn with_host_pids_the_daemonset_sees_processes_and_gains_nothing_else() {
    let mut pod = pod(daemonset(&["host-pids"]));
    assert_eq!(pod.host_pid.take(), Some(true));
    assert_eq!(pod, self::pod(base()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_agent_follows_pods_with_its_kubeconfig() {
    let objects = objects(&deploy("examples/otel-collector.yaml"));
    let of = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    for (known, object) in [
        (known::<Namespace>(of("Namespace")), of("Namespace")),
        (known::<ServiceAccount>(of("ServiceAccount")), of("ServiceAccount")),
        (known::<ConfigMap>(of("ConfigMap")), of("ConfigMap")),
        (known::<DaemonSet>(of("DaemonSet")), of("DaemonSet")),
    ] {
        assert_eq!(&known, object);
    }
    let pod = pod(serde_json::from_value(of("DaemonSet").clone()).unwrap());
    assert_eq!((pod.host_network, pod.automount_service_account_token), (Some(true), Some(false)));

    let agent = Agent::on(&crate::support::shipped());
    let text = of("ConfigMap")["data"]["kubeconfig"].as_str().unwrap();
    let text = text.replace("127.0.0.1:10270", &agent.address.to_string());
    assert!(text.contains(&agent.address.to_string()), "the agent's own port");
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    let pods: kube::Api<Pod> = kube::Api::all(kube::Client::try_from(config).unwrap());
    let of_node = kube::api::ListParams::default().fields("spec.nodeName=node-1");
    assert_eq!(pods.list(&of_node).await.unwrap().items.len(), 5);
}

/// `kubectl exec ds/pod-index -- /pod-index kubeconfig` runs it with the environment of the agent: what the agent *serves* on.
#[test]
fn a_container_of_the_daemonset_prints_a_kubeconfig_for_the_clients_of_its_node() {
    let of_component = |component: &str| -> Vec<(String, String)> {
        let file = deploy(&format!("kubernetes/components/{component}/daemonset.yaml"));
        let container = &objects(&file)[0]["spec"]["template"]["spec"]["containers"][0];
        let variables = container["env"].as_array().unwrap().iter();
        variables
            .map(|variable| ["name", "value"].map(|key| variable[key].as_str().unwrap().to_owned()).into())
            .collect()
    };
    let run = |component: &str, arguments: &str| {
        let arguments = format!("kubeconfig{arguments}");
        binary(arguments.as_str()).envs(of_component(component)).output().unwrap()
    };
    let server = |component: &str, arguments: &str| {
        let output = succeeded(run(component, arguments));
        let kubeconfig = kube::config::Kubeconfig::from_yaml(stdout(&output)).unwrap();
        kubeconfig.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap()
    };
    // A kubeconfig cannot name a socket, but the agent serves on its port as well.
    assert_eq!(server("socket", ""), "http://127.0.0.1:10270");
    // Nobody connects to 0.0.0.0.
    assert_eq!(server("tls", " --certificate-authority /etc/ca.crt"), "https://127.0.0.1:10270");
    assert_eq!(
        server("tls", " --certificate-authority /etc/ca.crt --address 10.0.0.7"),
        "https://10.0.0.7:10270"
    );
    // A socket of IPv6 need not take connections to 127.0.0.1.
    assert_eq!(server("tls", " --certificate-authority /etc/ca.crt --address ::"), "https://[::1]:10270");
    // Without TLS, no client could use it.
    let refused = run("tls", "");
    let why = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(why.contains("POD_INDEX_TLS_CERT_FILE") && why.contains("--certificate-authority"), "{why}");
}

/// The unit has the right to read every file. What it binds into an empty root decides which files it sees,
/// where systemd gives it that root.
#[test]
fn the_service_binds_the_manifests_and_its_configuration_and_no_key_of_the_node() {
    let unit = std::fs::read_to_string(deploy("systemd/pod-index.service")).unwrap();
    let values = |key: &str| {
        let lines = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        lines
            .flat_map(str::split_whitespace)
            .map(|path| path.trim_start_matches('-').to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(values("TemporaryFileSystem"), ["/:ro"], "nothing is there that is not bound");
    let bound = [values("BindReadOnlyPaths"), values("BindPaths"), values("RootDirectory")].concat();
    assert!(
        bound.contains(&"/etc/kubernetes/manifests".to_owned())
            && bound.contains(&"/etc/pod-index".to_owned())
    );
    // Where any node may keep keys and passwords. kubeadm's guides put root's kubeconfig into its home.
    let secrets = "/etc/kubernetes/admin.conf /etc/kubernetes/pki/ca.key /etc/kubernetes/kubelet.conf /etc/shadow \
                   /var/lib/kubelet/pki/kubelet.key /etc/ssh/ssh_host_ed25519_key /etc/ssl/private/key.pem \
                   /etc/pki/tls/private/localhost.key /etc/credstore/other /root/.kube/config /home/me/.kube/config \
                   /var/lib/etcd/member /run/secrets/token";
    for secret in secrets.split(' ') {
        let seen: Vec<_> = bound.iter().filter(|path| Path::new(secret).starts_with(path)).collect();
        assert!(seen.is_empty(), "{secret} is seen by {seen:?}");
    }
}
