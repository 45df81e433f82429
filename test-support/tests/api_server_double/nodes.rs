use super::*;

#[tokio::test]
async fn a_node_may_do_only_what_node_restriction_lets_it() {
    let server = ApiServer::start().await;
    let uid = server.put("nodes", &json!({ "metadata": { "name": "n1" } })).uid().to_owned();
    server.restrict_to_node("n1");
    let nodes: Api<Node> = Api::all(server.client());
    assert_eq!(nodes.get("n1").await.unwrap().metadata.uid.unwrap(), uid);
    let all: Api<Pod> = Api::all(server.client());
    assert_eq!(code(all.list(&ListParams::default()).await).0, 403);
    all.list(&ListParams::default().fields("spec.nodeName=n1")).await.expect("its own pods");

    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true });
    let mut good = pod("a", "one", "n1");
    good["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "h1" });
    good["metadata"]["ownerReferences"] = json!([owner]);
    let spoilt = |pointer: &str, value: Value| {
        let mut pod = good.clone();
        *pod.pointer_mut(pointer).unwrap() = value;
        pod
    };
    let owned_by = |change: &str, value: Value| {
        let mut owner = owner.clone();
        owner[change] = value;
        spoilt("/metadata/ownerReferences", json!([owner]))
    };
    let api: Api<Pod> = Api::namespaced(server.client(), "a");
    for (why, pod) in [
        ("no annotation", spoilt("/metadata/annotations", json!({}))),
        ("another node", spoilt("/spec/nodeName", json!("n2"))),
        ("no owner", spoilt("/metadata/ownerReferences", json!([]))),
        ("two owners", spoilt("/metadata/ownerReferences", json!([owner, owner]))),
        ("another UID", owned_by("uid", json!("other"))),
        ("another name", owned_by("name", json!("n2"))),
        ("no controller", owned_by("controller", json!(false))),
        ("blocks", owned_by("blockOwnerDeletion", json!(true))),
    ] {
        let refused = api.create(&PostParams::default(), &typed(pod)).await;
        assert_eq!(code(refused).0, 403, "{why}");
    }
    api.create(&PostParams::default(), &typed(good)).await.expect("a mirror pod of its own");
    server.put("pods", &pod("a", "foreign", "n2"));
    assert_eq!(code(api.delete("foreign", &DeleteParams::default()).await).0, 403);
}

#[tokio::test]
async fn a_node_may_name_no_object_in_a_mirror_pod_and_read_only_its_own_objects() {
    let server = ApiServer::start().await;
    server.restrict_to_node("n1");
    let api: Api<Pod> = Api::namespaced(server.client(), "a");
    let mut good = pod("a", "one", "n1");
    good["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "h1" });
    let owner = |uid: &str| json!([{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true }]);
    good["metadata"]["ownerReferences"] = owner("gone");
    let create = async |pod: Value| api.create(&PostParams::default(), &typed(pod)).await;
    assert_eq!(code(create(good.clone()).await), (404, "NotFound".to_owned()), "there is no such node");
    let uid = server.put("nodes", &json!({ "metadata": { "name": "n1" } })).uid().to_owned();
    good["metadata"]["ownerReferences"] = owner(&uid);

    let volume = |volume: Value| json!({ "volumes": [volume] });
    let container = |container: Value| json!({ "containers": [container] });
    for spec in [
        json!({ "imagePullSecrets": [{ "name": "s" }] }),
        json!({ "serviceAccountName": "robot" }),
        json!({ "initContainers": [{ "name": "i", "envFrom": [{ "secretRef": { "name": "s" } }] }] }),
        container(json!({ "name": "c", "envFrom": [{ "configMapRef": { "name": "m" } }] })),
        container(
            json!({ "name": "c", "env": [{ "name": "E", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
        ),
        container(
            json!({ "name": "c", "env": [{ "name": "E", "valueFrom": { "configMapKeyRef": { "name": "m", "key": "k" } } }] }),
        ),
        volume(json!({ "name": "v", "secret": { "secretName": "s" } })),
        volume(json!({ "name": "v", "configMap": { "name": "m" } })),
        volume(json!({ "name": "v", "projected": { "sources": [{ "secret": { "name": "s" } }] } })),
        volume(json!({ "name": "v", "projected": { "sources": [{ "configMap": { "name": "m" } }] } })),
        volume(json!({ "name": "v", "csi": { "driver": "d", "nodePublishSecretRef": { "name": "s" } } })),
        volume(json!({ "name": "v", "azureFile": { "secretName": "s", "shareName": "x" } })),
        volume(json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c" } })),
    ] {
        let mut named = good.clone();
        for (field, value) in spec.as_object().unwrap() {
            named["spec"][field] = value.clone();
        }
        assert_eq!(code(create(named).await).0, 403, "{spec}");
    }
    let made = create(good).await.unwrap();
    api.get("one").await.expect("its own pod");
    server.put("pods", &pod("a", "foreign", "n2"));
    for name in ["foreign", "none"] {
        assert_eq!(code(api.get(name).await).0, 403, "{name}: no relationship found");
    }
    assert_eq!(code(api.replace("one", &PostParams::default(), &made).await).0, 403);
    let nodes: Api<Node> = Api::all(server.client());
    assert_eq!(code(nodes.get("n2").await).0, 403);

    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(server.client(), "a");
    server.put("secrets", &json!({ "metadata": { "namespace": "a", "name": "s" } }));
    assert_eq!(code(secrets.get("s").await).0, 403);
    let mut user = pod("a", "user", "n1");
    user["spec"]["imagePullSecrets"] = json!([{ "name": "s" }]);
    server.put("pods", &user);
    secrets.get("s").await.expect("a pod of the node names it");
    secrets.list(&ListParams::default().fields("metadata.name=s")).await.expect("by its name");
    assert_eq!(code(secrets.list(&ListParams::default()).await).0, 403);
}
