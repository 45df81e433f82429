//! A read of an object in memory never waits, not even for a registration that is stopped in the middle and
//! holds the registrations' lock.
//!
//! A read that did wait would wait for ever, so the deadlines may be generous.

use pod_index_test_support::api_server;

use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use api_server::ApiServer;
use k8s_openapi::api::core::v1::Secret;
use nix::unistd::{Pid, gettid};
use pod_index::{Change, PodMeta};
use pod_index_kubelet::references::{Object, Options, Referenced, ReferencingPod, SecretManager};
use serde_json::json;
use tokio::runtime::Handle;

const DEADLINE: Duration = Duration::from_secs(120);

/// A pod that names one Secret and can be made slow to do so.
struct Slow {
    uid: &'static str,
    halt: Option<Halt>,
}

struct Halt {
    reached: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl PodMeta for Slow {
    fn uid(&self) -> &str {
        self.uid
    }
    fn name(&self) -> &str {
        self.uid
    }
    #[expect(clippy::unnecessary_literal_bound, reason = "as the trait has it")]
    fn namespace(&self) -> &str {
        "ns"
    }
    fn annotation(&self, _: &str) -> Option<&str> {
        None
    }
}

impl ReferencingPod for Slow {
    fn visit_references<'p>(&'p self, visit: &mut dyn FnMut(Referenced, &'p str)) {
        if let Some(halt) = &self.halt {
            let _ = halt.reached.send(());
            let _ = halt.go_on.lock().expect("nobody panicked").recv();
        }
        visit(Referenced::Secret, "a");
    }
    fn has_ended(&self) -> bool {
        false
    }
}

/// Does `work` on a separate thread, which signals its end.
fn begin(work: impl FnOnce() + Send + 'static) -> Receiver<()> {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    is_done
}

/// Every way to read the object, repeated.
fn read(secrets: &SecretManager, runtime: &Handle) -> Vec<Option<Object<Secret>>> {
    let mut read = Vec::new();
    for _ in 0..100 {
        read.push(secrets.cached("ns", "a"));
        read.push(runtime.block_on(secrets.get("ns", "a")).ok());
    }
    read
}

/// Whether this thread of the test sleeps, as one that waits for a lock does.
fn is_asleep(thread: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_loaded_objects_do_not_wait_for_a_registration() {
    let server = ApiServer::start().await;
    let secret = json!({ "metadata": { "namespace": "ns", "name": "a" }, "data": { "k": "djE=" } });
    server.put("secrets", &secret);
    let secrets = SecretManager::new(server.client(), Options { first_sync: DEADLINE, ..Options::default() });
    secrets.register_pod(&Slow { uid: "u1", halt: None });
    let first = secrets.get("ns", "a").await.expect("it comes");

    let (reached, is_reached) = mpsc::channel();
    let (go_on, told) = mpsc::channel();
    let halt = Halt { reached, go_on: Mutex::new(told) };
    let registering = begin({
        let secrets = secrets.clone();
        let slow = Arc::new(Slow { uid: "u2", halt: Some(halt) });
        // The objects of a large batch are requested one by one during its registration.
        move || secrets.apply(&[Change::Added(&slow)])
    });
    is_reached.recv_timeout(DEADLINE).expect("the registration gets there");
    let (sender, read) = mpsc::channel();
    let reading = begin({
        let (secrets, runtime) = (secrets.clone(), Handle::current());
        move || sender.send(self::read(&secrets, &runtime)).expect("the receiver exists")
    });
    let is_read = reading.recv_timeout(DEADLINE).is_ok();
    // Check that there is something to wait for: another registration does wait.
    let (named, name) = mpsc::channel();
    let other = begin({
        let secrets = secrets.clone();
        move || {
            named.send(gettid()).expect("the receiver exists");
            secrets.unregister_pod("nobody");
        }
    });
    let name = name.recv_timeout(DEADLINE).expect("the other registration begins");
    let waits = loop {
        match other.try_recv() {
            Err(TryRecvError::Empty) if !is_asleep(name) => thread::yield_now(),
            ended => break ended.is_err(),
        }
    };
    // Released before the assertions, so that a failing test ends.
    drop(go_on);
    assert!(is_read, "the readers wait for who registers");
    assert!(waits, "the lock was free, so this test proves nothing");
    let read = read.recv().expect("what was read");
    let first = first.into_arc();
    let is_first = |object: Object<Secret>| Arc::ptr_eq(&object.into_arc(), &first);
    assert!(read.into_iter().all(|object| object.is_some_and(is_first)));
    registering.recv_timeout(DEADLINE).expect("the registration ends");
    other.recv_timeout(DEADLINE).expect("the other one, too");
    assert_eq!(secrets.status().pods, 2);
}
