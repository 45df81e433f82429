//! Invalid requests and their responses. Other clients are served meanwhile.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_parameters_are_refused_as_by_the_api_server() {
    let world = World::new().await;
    world.server.put("pods", &pod("shop", "web", &json!({})));
    world.until("", 1);
    let long_selector = format!("labelSelector={}", vec!["a%3Db"; 2000].join(","));
    for (request, code, reason, word) in [
        ("GET /api/v1/pods?labelSelector=a%20b", 400, "BadRequest", "labelSelector"),
        ("GET /api/v1/pods?labelSelector=%FF", 400, "BadRequest", "labelSelector"),
        ("GET /api/v1/pods?fieldSelector=spec.image%3Dx", 400, "BadRequest", "spec.image"),
        ("GET /api/v1/pods?continue=garbage", 410, "Expired", "continue"),
        ("GET /api/v1/pods?watch=1&resourceVersion=-1", 400, "BadRequest", "resourceVersion"),
        ("GET /api/v1/pods?watch=1&continue=garbage", 410, "Expired", "continue"),
        ("GET /api/v1/pods?watch=1&timeoutSeconds=soon", 400, "BadRequest", "timeoutSeconds"),
        ("GET /api/v1/namespaces/shop/pods/nope", 404, "NotFound", "pods \"nope\" not found"),
        ("GET /api/v1/namespaces/shop/services", 404, "NotFound", "could not find"),
        ("GET /api/v1/namespaces/shop/pods/web/log", 404, "NotFound", "could not find"),
        ("GET /api/v1/nodes", 404, "NotFound", "could not find"),
        ("GET /apis/apps/v1/deployments", 404, "NotFound", "could not find"),
        ("GET /openapi/v2", 404, "NotFound", ""),
        ("POST /api/v1/namespaces/shop/pods", 405, "MethodNotAllowed", "does not allow"),
        ("DELETE /api/v1/namespaces/shop/pods/web", 405, "MethodNotAllowed", "does not allow"),
        ("PATCH /api/v1/namespaces/shop/pods/web", 405, "MethodNotAllowed", "does not allow"),
        ("PUT /api/v1/pods", 405, "MethodNotAllowed", "does not allow"),
        ("DELETE /api/v1/namespaces/shop/pods", 405, "MethodNotAllowed", "does not allow"),
    ] {
        let answer = world.agent.send(request, "", "");
        let status: Value = answer.json();
        assert_eq!((answer.code, &status["reason"]), (code, &json!(reason)), "{request}: {}", answer.body);
        assert_eq!((&status["kind"], &status["apiVersion"]), (&json!("Status"), &json!("v1")));
        assert_eq!((&status["status"], &status["code"]), (&json!("Failure"), &json!(code)));
        assert!(status["message"].as_str().unwrap().contains(word), "{request}: {}", status["message"]);
    }
    for (query, code) in [
        ("limit=9223372036854775807", 200),
        (&*long_selector, 200),
        ("labelSelector=&fieldSelector=&continue=&resourceVersion=", 200),
        ("labelSelector=app%20in%20()", 200),
        ("fieldSelector=status.podIPs%3D10.0.0.1", 400),
        ("timeoutSeconds=1.5", 400),
        ("timeoutSeconds=&watch=1", 400),
        ("resourceVersion=abc", 400),
        ("resourceVersion=%2B1", 400),
        ("resourceVersion=99999999999999999999", 400),
        ("includeObject=Everything", 200),
        ("limit=", 200),
        ("resourceVersionMatch=Newest", 200),
        // A well-formed token of another server.
        ("continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTIzLCJzdGFydCI6InNob3AvYVx1MDAwMCJ9", 410),
    ] {
        assert_eq!(world.agent.get(&format!("/api/v1/pods?{query}")).code, code, "{query:.60}");
    }
    for accept in [
        "application/vnd.kubernetes.protobuf",
        "text/html",
        "application/yaml",
        "application/json;as=Other;v=v1;g=meta.k8s.io",
    ] {
        for path in ["/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/namespaces/shop/pods/web"] {
            let answer = world.agent.send(&format!("GET {path}"), &format!("Accept: {accept}\r\n"), "");
            assert_eq!(
                (answer.code, &answer.json::<Value>()["reason"]),
                (406, &json!("NotAcceptable")),
                "{accept} {path}"
            );
        }
    }
    let both = "Accept: application/vnd.kubernetes.protobuf, application/json\r\n";
    assert_eq!(world.agent.send("GET /api/v1/pods", both, "").json::<Value>()["kind"], "PodList");
}
