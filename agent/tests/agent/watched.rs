//! Edits of the manifest directory: a new manifest is served at once, and no edit makes another pod
//! disappear.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;

use crate::support::{Agent, Directory, PATIENCE, Stop, get, manifest, shipped};

/// What `/pods` shows: names, and the image of each pod's container.
type Shown = BTreeMap<String, String>;

fn shown(agent: SocketAddr) -> Shown {
    let list: List<Pod> = get(agent, "/pods").json();
    let image =
        |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone()).unwrap_or_default();
    list.items.iter().map(|pod| (pod.name().to_owned(), image(pod))).collect()
}

/// Requests `/pods` without a pause. Keeps each response that differs from the previous one.
struct Watch {
    seen: Mutex<Vec<Shown>>,
    stop: Stop,
}

impl Watch {
    fn on(&self, agent: SocketAddr) -> usize {
        let mut asked = 0;
        while !self.stop.is_set() {
            let now = shown(agent);
            asked += 1;
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.last() != Some(&now) {
                seen.push(now);
            }
        }
        asked
    }

    /// The time until `/pods` shows the expected pods.
    fn until(&self, good: impl Fn(&Shown) -> bool) -> Duration {
        let started = Instant::now();
        loop {
            if self.seen.lock().unwrap().last().is_some_and(&good) {
                return started.elapsed();
            }
            assert!(started.elapsed() < PATIENCE, "still {:?}", self.seen.lock().unwrap().last());
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn a_manifest_is_added_changed_moved_and_removed_without_affecting_other_pods() {
    let directory = Directory::new();
    for number in 0..20 {
        directory.write(&format!("other-{number}.yaml"), &manifest(&format!("other-{number}")));
    }
    // The next listing is an hour away, so only file events can reveal the change.
    let agent = Agent::on_with(&directory.0, &["--file-check-frequency", "1h"]);
    let others = shown(agent.address);
    assert_eq!(others.len(), 20);

    let watch = Watch { seen: Mutex::default(), stop: Stop::default() };
    let text = fs::read_to_string(shipped().join("static-web.yaml")).unwrap();
    let edited = text.replace("image: nginx", "image: httpd");
    assert_ne!(text, edited);
    let is = |image: &'static str| {
        move |shown: &Shown| shown.get("static-web-node-1").is_some_and(|is| is == image)
    };
    let at = |name: &str| directory.0.join(name);
    let asked = std::thread::scope(|scope| {
        let end = watch.stop.at_the_end();
        let watching = scope.spawn(|| watch.on(agent.address));
        watch.until(|shown| *shown == others);
        fs::write(at("web.yaml"), &text).unwrap();
        println!("dropped in: shown after {:.1?}", watch.until(is("nginx")));
        // In place, as simple editors write.
        fs::write(at("web.yaml"), &edited).unwrap();
        println!("edited in place: {:.1?}", watch.until(is("httpd")));
        directory.write("web.yaml", &text);
        println!("replaced: {:.1?}", watch.until(is("nginx")));
        let uid = agent.get("/pods/default/static-web-node-1").json::<Pod>().metadata.uid;
        fs::rename(at("web.yaml"), at("renamed.yaml")).unwrap();
        // The same pod at another path has another UID.
        let started = Instant::now();
        agent.until("/pods/default/static-web-node-1", |answer| {
            answer.code == 200 && answer.json::<Pod>().metadata.uid != uid
        });
        println!("renamed: {:.1?}", started.elapsed());
        fs::remove_file(at("renamed.yaml")).unwrap();
        println!("removed: {:.1?}", watch.until(|shown| *shown == others));
        drop(end);
        watching.join().unwrap()
    });
    let seen = watch.seen.into_inner().unwrap();
    println!("/pods asked {asked} times, {} different answers", seen.len());
    assert!(asked > 20, "hardly asked at all");
    for shown in &seen {
        let missing: Vec<_> =
            others.iter().filter(|(name, image)| shown.get(*name) != Some(*image)).collect();
        assert_eq!(missing, [], "for a moment");
    }
}
