//! What the commands do when an agent refuses for now. For `whois`, see its own tests; `top` has them beside its code.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::support::{binary, refusal, serve_bodies, stderr, stdout};

/// An agent that refuses a few requests, and then answers this to each.
struct BusyAgent {
    address: String,
    requests: Arc<AtomicUsize>,
}

impl BusyAgent {
    fn start(refused: &'static [u16], body: &serde_json::Value) -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let body = body.to_string();
        let address = serve_bodies(move |_, _| {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            refused.get(number).map_or_else(|| ("200 OK", body.clone()), |code| refusal(*code))
        });
        Self { address, requests }
    }

    fn run(&self, args: &[&str]) -> Output {
        let (address, port) = self.address.split_once(':').unwrap();
        let (command, args) = args.split_first().unwrap();
        binary(&[&[*command, "--address", address, "--port", port], args].concat()).output().unwrap()
    }
}

fn pod() -> serde_json::Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": { "namespace": "shop", "name": "web", "uid": "u" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    })
}

#[test]
fn a_command_asks_again_when_an_agent_that_refuses_for_now_says() {
    let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod()] });
    for (args, body) in
        [(&["get", "shop/web"][..], pod()), (&["list"], list.clone()), (&["list", "-o", "json"], list)]
    {
        let agent = BusyAgent::start(&[429, 503], &body);
        let output = agent.run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        assert!(stdout(&output).contains("web"), "{args:?}: {}", stdout(&output));
        assert_eq!(agent.requests.load(Ordering::Relaxed), 3, "{args:?}");
        let said = "429 Too Many Requests planted; asks again for up to 10s";
        assert!(stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "it says so once: {}", stderr(&output));
    }
}
