//! The file source on real directories with real file events, for everything that people and tools do to
//! files.
//!
//! Nearly all of these tests list once an hour, so they see changes through events.

use crate::sources_support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use pod_index_kubelet::sources::{NodeName, Nudge, Problem, ProblemKind, SourceStatus, Updates, file};
use sources_support::{Directory, manifest, next, until_status};

const NEVER: Duration = Duration::from_secs(3600);
const OFTEN: Duration = Duration::from_millis(10);

fn source(path: impl AsRef<Path>, period: Duration) -> Updates<Pod> {
    file::follow_with(path, NodeName::new("n1"), period, |_| {}, Nudge::default())
}

/// Polls until the set is `names`, in that order. No intermediate set may lack `always`.
async fn until(source: &mut Updates<Pod>, always: Option<&str>, names: &[&str]) -> Vec<Arc<Pod>> {
    loop {
        let pods = next(source).await;
        let now: Vec<_> = pods.iter().map(|pod| pod.name().to_owned()).collect();
        if let Some(always) = always {
            assert!(now.iter().any(|name| name == always), "{always} is missing from {now:?}");
        }
        if now == names {
            return pods;
        }
    }
}

/// Polls until the first pod has that image. Each set until then has at least this many pods.
async fn until_image_of(source: &mut Updates<Pod>, image: &str, least: usize) {
    loop {
        let pods = next(source).await;
        assert!(pods.len() >= least, "{pods:?}");
        if image_of(&pods).as_deref() == Some(image) {
            return;
        }
    }
}

async fn until_image(source: &mut Updates<Pod>, image: &str) {
    until_image_of(source, image, 0).await;
}

fn image_of(pods: &[Arc<Pod>]) -> Option<String> {
    pods.first()?.spec.as_ref()?.containers.first()?.image.clone()
}

fn with_image(name: &str, image: &str) -> String {
    manifest(name).replace("image: i", &format!("image: '{image}'"))
}

#[tokio::test]
async fn no_way_of_saving_a_file_affects_another_pod() {
    let directory = Directory::new();
    directory.write("a.yaml", with_image("a", "first"));
    directory.write("b.yaml", manifest("b"));
    let mut source = source(directory.path(), NEVER);
    until(&mut source, None, &["a-n1", "b-n1"]).await;

    // A new file renamed over the old one.
    directory.write(".a.yaml.tmp", with_image("a", "renamed"));
    fs::rename(directory.at(".a.yaml.tmp"), directory.at("a.yaml")).expect("renamed");
    until_image(&mut source, "renamed").await;

    // vi: the old file renamed to a backup, a new one written, the backup removed.
    fs::rename(directory.at("a.yaml"), directory.at("a.yaml~")).expect("renamed");
    directory.write("a.yaml", with_image("a", "vi"));
    fs::remove_file(directory.at("a.yaml~")).expect("removed");
    loop {
        let pods = next(&mut source).await;
        assert!(pods.iter().any(|pod| pod.name() == "b-n1"));
        if image_of(&pods).as_deref() == Some("vi") {
            break;
        }
    }

    // Truncated and written piece by piece: while the file is invalid, the last valid pod stays.
    directory.write("a.yaml", "");
    directory.write("a.yaml", &with_image("a", "pieces")[..40]);
    directory.write("a.yaml", with_image("a", "pieces"));
    until_image_of(&mut source, "pieces", 2).await;
}

#[tokio::test]
async fn a_mounted_config_map_is_followed_through_its_swap() {
    let directory = Directory::new();
    fs::create_dir(directory.at("..1")).expect("a directory");
    directory.write("..1/web.yaml", with_image("web", "one"));
    symlink("..1", directory.at("..data")).expect("a link");
    symlink("..data/web.yaml", directory.at("web.yaml")).expect("a link");
    let mut whole = source(directory.path(), NEVER);
    let mut single = source(directory.at("web.yaml"), NEVER);
    until_image(&mut whole, "one").await;
    until_image(&mut single, "one").await;

    // Like the kubelet's atomic writer.
    fs::create_dir(directory.at("..2")).expect("a directory");
    directory.write("..2/web.yaml", with_image("web", "two"));
    symlink("..2", directory.at("..data_tmp")).expect("a link");
    fs::rename(directory.at("..data_tmp"), directory.at("..data")).expect("renamed");
    fs::remove_dir_all(directory.at("..1")).expect("removed");
    until_image(&mut whole, "two").await;
    until_image(&mut single, "two").await;
}

#[tokio::test]
async fn a_directory_may_be_created_late_removed_and_created_again() {
    let directory = Directory::new();
    let path = directory.at("etc/kubernetes/manifests");
    let mut source = source(&path, NEVER);
    assert_eq!(next(&mut source).await.len(), 0);
    assert_eq!(source.status().borrow().problems[0].kind, ProblemKind::Missing);
    assert!(source.status().borrow().seen);

    for round in 0..3 {
        // One after the other: each step must be noticed before the next.
        fs::create_dir(directory.at("etc")).expect("a directory");
        fs::create_dir(directory.at("etc/kubernetes")).expect("a directory");
        let checks = source.status().borrow().checks;
        until_status(&mut source, |status| status.checks > checks).await;
        fs::create_dir(&path).expect("a directory");
        until_status(&mut source, |status| status.problems.is_empty()).await;
        fs::write(path.join("web.yaml"), with_image("web", &round.to_string())).expect("written");
        until_image(&mut source, &round.to_string()).await;
        fs::remove_dir_all(directory.at("etc")).expect("removed");
        until(&mut source, None, &[]).await;
    }
}

/// If an unreadable directory were reported as empty, restored pods and their mirrors would be removed.
#[tokio::test]
async fn a_directory_that_cannot_be_listed_yet_is_not_said_to_be_empty() {
    let directory = Directory::new();
    let path = directory.path().join("manifests");
    symlink(&path, &path).unwrap();
    let mut source = source(&path, OFTEN);
    let status = until_status(&mut source, |status| status.failed_checks >= 3).await;
    assert!(!status.seen);
    assert_eq!(status.problems[0].kind, ProblemKind::Unreadable);

    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("web.yaml"), manifest("web")).unwrap();
    until(&mut source, Some("web-n1"), &["web-n1"]).await;
}

#[tokio::test]
async fn a_directory_replaced_by_another_is_the_other_one() {
    let directory = Directory::new();
    for (name, image) in [("one", "1"), ("two", "2"), ("three", "3")] {
        fs::create_dir(directory.at(name)).expect("a directory");
        directory.write(&format!("{name}/web.yaml"), with_image("web", image));
    }
    symlink("one", directory.at("manifests")).expect("a link");
    let mut source = source(directory.at("manifests"), NEVER);
    until_image(&mut source, "1").await;

    symlink("two", directory.at("new")).expect("a link");
    fs::rename(directory.at("new"), directory.at("manifests")).expect("renamed");
    until_image(&mut source, "2").await;
    // Events now come from there.
    directory.write("two/web.yaml", with_image("web", "2.1"));
    until_image(&mut source, "2.1").await;

    fs::remove_file(directory.at("manifests")).expect("removed");
    fs::rename(directory.at("three"), directory.at("manifests")).expect("renamed");
    until_image(&mut source, "3").await;
    directory.write("manifests/web.yaml", with_image("web", "3.1"));
    until_image(&mut source, "3.1").await;
}

#[tokio::test]
async fn a_file_that_turns_bad_keeps_its_last_good_pod_until_it_is_good_again_or_gone() {
    let directory = Directory::new();
    directory.write("web.yaml", with_image("web", "good"));
    let mut source = source(directory.path(), OFTEN);
    let good = next(&mut source).await;

    for bad in ["kind: [", "", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {}\n"] {
        directory.write("web.yaml", bad);
        let checks = source.status().borrow().checks;
        let status = until_status(&mut source, |status| {
            status.checks > checks + 3
                && status.problems.iter().any(|problem| problem.message.ends_with("stays"))
        });
        assert_eq!(status.await.pods, 1, "{bad:?}");
    }
    let large = "#".repeat(10 * 1024 * 1024 + 1);
    directory.write("web.yaml", large);
    let status = until_status(&mut source, |status| {
        status.problems.iter().any(|problem| problem.kind == ProblemKind::TooLarge)
    });
    assert_eq!(status.await.pods, 1);
    let checks = source.status().borrow().checks;
    assert_eq!(until_status(&mut source, |status| status.checks > checks + 3).await.pods, 1);

    // Valid again with the same content: it is the same pod, so there is no update.
    directory.write("web.yaml", with_image("web", "good"));
    until_status(&mut source, |status| status.problems.is_empty()).await;
    directory.write("web.yaml", with_image("web", "better"));
    until_image(&mut source, "better").await;

    directory.write("web.yaml", "kind: [");
    until_status(&mut source, |status| !status.problems.is_empty()).await;
    fs::remove_file(directory.at("web.yaml")).expect("removed");
    until(&mut source, None, &[]).await;
    until_status(&mut source, |status| status.problems.is_empty()).await;
    assert_eq!(good.len(), 1);
}

/// Changes a link's target, without a moment in which the link is missing.
fn link(directory: &Directory, name: &str, to: &str) {
    symlink(to, directory.at(".new")).expect("a link");
    fs::rename(directory.at(".new"), directory.at(name)).expect("renamed");
}

/// Polls until there is this problem and several listings have seen it; no update may come.
async fn until_unreadable(source: &mut Updates<Pod>, message: &str) {
    let met = |status: &SourceStatus| {
        let is_it = |problem: &Problem| {
            problem.kind == ProblemKind::Unreadable && problem.message.starts_with(message)
        };
        status.problems.first().is_some_and(is_it)
    };
    let checks = until_status(source, met).await.checks;
    let status = until_status(source, |status| status.checks > checks + 3).await;
    assert!(met(&status), "{:?}", status.problems);
    assert_eq!(status.pods, 1);
}

#[tokio::test]
async fn a_file_or_a_directory_that_cannot_be_read_any_more_keeps_its_pods() {
    // A link to itself is unreadable, even for root.
    for (unreadable, message) in
        [("manifests/web.yaml", "cannot be read: "), ("manifests", "cannot be listed: ")]
    {
        let directory = Directory::new();
        for name in ["there", "target"] {
            fs::create_dir(directory.at(name)).expect("a directory");
        }
        directory.write("target/web.yaml", with_image("web", "1"));
        let target = directory.at("target");
        link(&directory, "manifests", "there");
        link(&directory, "manifests/web.yaml", target.join("web.yaml").to_str().expect("text"));
        let mut source = source(directory.at("manifests"), OFTEN);
        until_image(&mut source, "1").await;

        let was = fs::read_link(directory.at(unreadable)).expect("a link");
        link(&directory, unreadable, directory.at(unreadable).to_str().expect("text"));
        until_unreadable(&mut source, message).await;
        assert!(source.status().borrow().seen);
        let kept = source.status().borrow().problems[0].message.ends_with("; the last good version stays");
        assert_eq!(kept, unreadable != "manifests");

        link(&directory, unreadable, was.to_str().expect("text"));
        until_status(&mut source, |status| status.problems.is_empty()).await;
        directory.write("target/web.yaml", with_image("web", "2"));
        until_image(&mut source, "2").await;
    }
}

#[tokio::test]
async fn a_single_file_is_followed_through_replacement_and_absence() {
    let directory = Directory::new();
    let mut source = source(directory.at("web.yaml"), NEVER);
    assert_eq!(next(&mut source).await.len(), 0);
    directory.write("web.yaml", with_image("web", "1"));
    until_image(&mut source, "1").await;
    directory.write("new", with_image("web", "2"));
    fs::rename(directory.at("new"), directory.at("web.yaml")).expect("renamed");
    until_image(&mut source, "2").await;
    fs::remove_file(directory.at("web.yaml")).expect("removed");
    assert_eq!(next(&mut source).await.len(), 0);
}

/// There are events for the link, not for its target: the listing finds it.
#[tokio::test]
async fn an_edit_that_hides_behind_the_old_time_and_size_is_found() {
    let directory = Directory::new();
    let elsewhere = Directory::new();
    let old = std::time::SystemTime::now() - Duration::from_secs(1000);
    let write = |image| {
        elsewhere.write("web.yaml", with_image("web", image));
        let file = fs::File::options().write(true).open(elsewhere.at("web.yaml")).expect("opened");
        file.set_modified(old).expect("touched");
    };
    write("1");
    symlink(elsewhere.at("web.yaml"), directory.at("web.yaml")).expect("a link");
    let mut source = source(directory.path(), OFTEN);
    until_image(&mut source, "1").await;
    write("2");
    until_image(&mut source, "2").await;
}

#[tokio::test]
async fn unchanged_pods_stay_the_same_and_are_not_emitted_again() {
    let directory = Directory::new();
    directory.write("a.yaml", manifest("a"));
    let mut source = source(directory.path(), NEVER);
    let first = next(&mut source).await;
    let seen = first[0].annotation("kubernetes.io/config.seen").map(str::to_owned);

    let checks = source.status().borrow().checks;
    directory.write("a.yaml", manifest("a"));
    until_status(&mut source, |status| status.checks > checks).await;
    directory.write("a.yaml", format!("# only a comment\n{}", manifest("a")));
    let checks = source.status().borrow().checks;
    until_status(&mut source, |status| status.checks > checks).await;

    directory.write("b.yaml", manifest("b"));
    let second = until(&mut source, Some("a-n1"), &["a-n1", "b-n1"]).await;
    assert!(Arc::ptr_eq(&first[0], &second[0]));
    assert_eq!(second[0].annotation("kubernetes.io/config.seen").map(str::to_owned), seen);
    assert_eq!(source.status().borrow().updates, 2);
}

#[tokio::test]
async fn an_edit_of_a_pod_with_a_uid_of_its_own_keeps_the_time_it_was_first_seen() {
    let directory = Directory::new();
    let with_uid = |image| with_image("web", image).replace("name: web", "name: web\n  uid: mine");
    directory.write("web.yaml", with_uid("1"));
    let mut source = source(directory.path(), NEVER);
    let first = next(&mut source).await;
    directory.write("web.yaml", with_uid("2"));
    let second = next(&mut source).await;
    assert_eq!(image_of(&second).as_deref(), Some("2"));
    let seen = |pods: &[Arc<Pod>]| pods[0].annotation("kubernetes.io/config.seen").map(str::to_owned);
    assert!(seen(&first).is_some());
    assert_eq!(seen(&first), seen(&second));
}

#[tokio::test]
async fn many_changes_at_once_end_with_the_servers_pods() {
    let directory = Directory::new();
    let mut source = source(directory.path(), NEVER);
    assert_eq!(next(&mut source).await.len(), 0);
    let path = directory.path().to_owned();
    let storm = std::thread::spawn(move || {
        for round in 0..200 {
            let name = format!("p{}", round % 10);
            let file = path.join(format!("{name}.yaml"));
            match round % 3 {
                0 => fs::write(&file, with_image(&name, &round.to_string())).expect("written"),
                1 => drop(fs::remove_file(&file)),
                _ => drop(fs::rename(&file, path.join("moved.yaml"))),
            }
        }
        fs::write(path.join("zz-last.yaml"), manifest("last")).expect("written");
    });
    loop {
        let pods = next(&mut source).await;
        if pods.iter().any(|pod| pod.name() == "last-n1") {
            storm.join().expect("a storm");
            let truth = file::list(directory.path(), &NodeName::new("n1"));
            let uids = |pods: &[Arc<Pod>]| pods.iter().map(|pod| pod.uid().to_owned()).collect::<Vec<_>>();
            assert_eq!(uids(&pods), uids(&truth.pods));
            return;
        }
    }
}
