//! Real directories with everything that real directories contain.

use crate::sources_support;

use std::fs;

use pod_index::PodMeta;
use pod_index_kubelet::sources::file::{self, Listing};
use pod_index_kubelet::sources::{NodeName, ProblemKind};
use sources_support::{Directory, manifest};

fn list(directory: &Directory) -> Listing {
    file::list(directory.path(), &NodeName::new("n1"))
}

fn names(listing: &Listing) -> Vec<&str> {
    listing.pods.iter().map(|pod| pod.name()).collect()
}

fn problems(listing: &Listing) -> Vec<(ProblemKind, &str)> {
    listing
        .problems
        .iter()
        .map(|problem| (problem.kind, problem.origin.rsplit('/').next().unwrap_or_default()))
        .collect()
}

#[test]
fn a_directory_is_listed_in_the_order_of_its_names() {
    let directory = Directory::new();
    directory.write("b.yaml", manifest("b"));
    directory.write("a.json", r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#);
    directory.write("c", format!("{}---\n{}", manifest("c1"), manifest("c2")));
    let listing = list(&directory);
    assert_eq!(names(&listing), ["a-n1", "b-n1", "c1-n1", "c2-n1"]);
    assert_eq!(listing.problems, []);
}

#[test]
fn a_single_file_is_a_source_too_whatever_it_is_called() {
    let directory = Directory::new();
    for name in ["web.yaml", ".hidden", "web.bak"] {
        directory.write(name, manifest("web"));
        let listing = file::list(directory.at(name), &NodeName::new("n1"));
        assert_eq!((names(&listing), listing.problems.len()), (vec!["web-n1"], 0), "{name}");
    }
}

#[test]
fn a_bad_file_affects_no_other() {
    let directory = Directory::new();
    directory.write("a.yaml", manifest("a"));
    directory.write("b.yaml", "kind: [");
    directory.write("c.yaml", "");
    directory.write("d.yaml", manifest("D"));
    directory.write("e.yaml", manifest("e"));
    let listing = list(&directory);
    assert_eq!(names(&listing), ["a-n1", "e-n1"]);
    assert_eq!(
        problems(&listing),
        [(ProblemKind::Syntax, "b.yaml"), (ProblemKind::Syntax, "c.yaml"), (ProblemKind::Invalid, "d.yaml"),]
    );
}

#[test]
fn hidden_names_are_passed_over_silently_and_leftovers_with_a_word() {
    let directory = Directory::new();
    directory.write("web.yaml", manifest("web"));
    directory.write(".web.yaml.swp", "binary");
    directory.write("web.yaml~", manifest("old"));
    directory.write("web.yaml.bak", manifest("bak"));
    directory.write("web.yaml.rpmsave", manifest("rpm"));
    let listing = list(&directory);
    assert_eq!(names(&listing), ["web-n1"]);
    assert_eq!(
        problems(&listing),
        [
            (ProblemKind::Skipped, "web.yaml.bak"),
            (ProblemKind::Skipped, "web.yaml.rpmsave"),
            (ProblemKind::Skipped, "web.yaml~"),
        ]
    );
}

#[test]
fn the_later_of_two_files_with_one_pod_counts_and_the_earlier_is_reported() {
    let directory = Directory::new();
    directory.write("a.yaml", manifest("web").replace("image: i", "image: a"));
    directory.write("b.yaml", manifest("web").replace("image: i", "image: b"));
    directory.write("c.yaml", manifest("other").replace("name: other", "name: other\n  uid: u"));
    directory.write("d.yaml", manifest("another").replace("name: another", "name: another\n  uid: u"));
    let listing = list(&directory);
    assert_eq!(names(&listing), ["web-n1", "another-n1"]);
    let image = listing.pods[0].spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref());
    assert_eq!(image, Some("b"));
    assert_eq!(problems(&listing), [(ProblemKind::Duplicate, "a.yaml"), (ProblemKind::Duplicate, "c.yaml")]);
    assert_eq!(listing.problems[0].field.as_deref(), Some("metadata.name"));
    assert_eq!(listing.problems[1].field.as_deref(), Some("metadata.uid"));
    assert!(listing.problems[0].message.contains("b.yaml"), "{}", listing.problems[0]);

    fs::remove_file(directory.at("b.yaml")).expect("removed");
    assert_eq!(names(&list(&directory)), ["web-n1", "another-n1"]);
}

#[test]
fn a_manifest_over_the_limit_is_refused() {
    let directory = Directory::new();
    let limit = 10 * 1024 * 1024;
    let web = manifest("web");
    let text = format!("{web}# {}", "x".repeat(limit - web.len() - 2));
    assert_eq!(text.len(), limit);
    directory.write("a.yaml", &text);
    directory.write("b.yaml", text + "x");
    let listing = list(&directory);
    assert_eq!(names(&listing), ["web-n1"]);
    assert_eq!(problems(&listing), [(ProblemKind::TooLarge, "b.yaml")]);
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_not_a_regular_file_is_never_opened() {
        let directory = Directory::new();
        directory.write("a.yaml", manifest("a"));
        fs::create_dir(directory.at("b.d")).expect("a directory");
        directory.write("b.d/b.yaml", manifest("b"));
        // A FIFO without a writer: opening it for reading would hang.
        let status = Command::new("mkfifo").arg(directory.at("c.yaml")).status().expect("mkfifo");
        assert!(status.success());
        let _socket = UnixListener::bind(directory.at("d.yaml")).expect("a socket");
        symlink("/dev/zero", directory.at("e.yaml")).expect("a link");
        let listing = list(&directory);
        assert_eq!(names(&listing), ["a-n1"]);
        let messages: Vec<_> = listing.problems.iter().map(|problem| &*problem.message).collect();
        assert_eq!(
            messages,
            [
                "skipped, because it is a directory",
                "skipped, because it is a FIFO",
                "skipped, because it is a socket",
                "skipped, because it is a device",
            ]
        );
        for single in ["c.yaml", "d.yaml", "e.yaml"] {
            let listing = file::list(directory.at(single), &NodeName::new("n1"));
            assert_eq!(problems(&listing), [(ProblemKind::Skipped, single)]);
        }
    }

    #[test]
    fn links_are_followed_and_dangling_ones_reported() {
        let directory = Directory::new();
        fs::create_dir(directory.at("..2026_11_21")).expect("a directory");
        directory.write("..2026_11_21/web.yaml", manifest("web"));
        symlink("..2026_11_21", directory.at("..data")).expect("a link");
        symlink("..data/web.yaml", directory.at("web.yaml")).expect("a link");
        symlink("nowhere", directory.at("dangling.yaml")).expect("a link");
        let listing = list(&directory);
        assert_eq!(names(&listing), ["web-n1"]);
        assert_eq!(problems(&listing), [(ProblemKind::Unreadable, "dangling.yaml")]);
        let uid = listing.pods[0].uid().to_owned();

        // The pod's path is that of the link, not of its target.
        fs::rename(directory.at("..2026_11_21"), directory.at("..2026_11_22")).expect("renamed");
        fs::remove_file(directory.at("..data")).expect("removed");
        symlink("..2026_11_22", directory.at("..data")).expect("a link");
        assert_eq!(list(&directory).pods[0].uid(), uid);
    }
}
