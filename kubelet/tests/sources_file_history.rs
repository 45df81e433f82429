//! Random histories of edits to a manifest directory. At the end, the source's pods and problems must equal
//! those of a model that knows only the last valid content of each file.

use crate::sources_support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use pod_index::PodMeta;
use pod_index_kubelet::sources::{NodeName, Nudge, ProblemKind, SourceUpdate, Updates, file};
use pod_index_test_support::dice::Dice;
use sources_support::{Directory, manifest};

/// Only a hang takes this long.
const DEADLINE: Duration = Duration::from_secs(300);
const STEPS: usize = 16;
const FILES: u64 = 6;
/// Fewer than the files could use, so that files contend for names.
const PODS: u64 = 5;
/// The last file by name: its pod shows how far a listing has got.
const SENTINEL: &str = "zz.yaml";

/// The pod's name, and its image, which identifies the version.
type Shown = (String, String);

/// The content written to a file. No file has two invalid documents or two documents of one pod.
#[derive(Clone, Debug)]
enum Content {
    /// One document per pod. A document without an image is invalid.
    Documents(Vec<(String, Option<String>)>),
    /// No YAML at all, or nothing.
    Broken(&'static str),
    /// A link to itself.
    Unreadable,
}

impl Content {
    fn text(&self) -> String {
        match self {
            Self::Documents(documents) => {
                let document = |(pod, image): &(String, Option<String>)| {
                    let image = image.as_deref().unwrap_or_default();
                    manifest(pod).replace("image: i", &format!("image: '{image}'"))
                };
                documents.iter().map(document).collect::<Vec<_>>().join("---\n")
            }
            Self::Broken(text) => (*text).to_owned(),
            Self::Unreadable => unreachable!("a link has no text"),
        }
    }
}

/// One file according to the rules.
struct File {
    content: Content,
    pods: Vec<Shown>,
    is_bad: bool,
}

impl File {
    /// A valid file gives its content. An invalid file gives its valid documents and all its earlier pods.
    fn new(content: Content, before: Option<&Self>) -> Self {
        let documents: &[_] = if let Content::Documents(documents) = &content { documents } else { &[] };
        let is_bad = documents.is_empty() || documents.iter().any(|(_, image)| image.is_none());
        let mut pods: Vec<Shown> =
            documents.iter().filter_map(|(pod, image)| Some((pod.clone(), image.clone()?))).collect();
        if is_bad {
            let named: BTreeSet<_> = pods.iter().map(|(pod, _)| pod.clone()).collect();
            let kept = before.into_iter().flat_map(|before| &before.pods);
            pods.extend(kept.filter(|(pod, _)| !named.contains(pod)).cloned());
        }
        Self { content, pods, is_bad }
    }
}

/// The directory according to the rules.
#[derive(Default)]
struct Model(BTreeMap<String, File>);

/// What the source should show: pods with their files, and the files with problems. For those, whether the
/// problem is a pod that a later file has too.
type Expected = (Vec<(String, Shown)>, Vec<(String, bool)>);

impl Model {
    fn write(&mut self, name: &str, content: Content) {
        let file = File::new(content, self.0.get(name));
        self.0.insert(name.to_owned(), file);
    }

    fn expected(&self) -> Expected {
        let all = || self.0.iter().flat_map(|(name, file)| file.pods.iter().map(move |pod| (name, pod)));
        // Of several, the last one counts.
        let winners: BTreeMap<&str, &str> = all().map(|(name, (pod, _))| (&**pod, &**name)).collect();
        let wins = |name: &str, pod: &str| winners[pod] == name;
        let mut problems: Vec<_> =
            self.0.iter().filter(|(_, file)| file.is_bad).map(|(name, _)| (name.clone(), false)).collect();
        problems
            .extend(all().filter(|(name, (pod, _))| !wins(name, pod)).map(|(name, _)| (name.clone(), true)));
        problems.sort();
        let shown = all().filter(|(name, (pod, _))| wins(name, pod));
        (shown.map(|(name, pod)| (name.clone(), pod.clone())).collect(), problems)
    }
}

struct History {
    random: Dice,
    directory: Directory,
    model: Model,
    source: Updates<Pod>,
    /// A record of all actions, for analysing a failure.
    done: Vec<String>,
    /// Each version differs from all others.
    version: u64,
    /// Pods that no intermediate set may lack.
    steady: BTreeSet<Shown>,
}

impl History {
    fn new(seed: u64) -> Self {
        // Uses file events only, with listings in the middle of edits.
        let period =
            if seed.is_multiple_of(2) { Duration::from_secs(3600) } else { Duration::from_millis(1) };
        let directory = Directory::new();
        let source =
            file::follow_with(directory.path(), NodeName::new("n1"), period, |_| {}, Nudge::default());
        let done = vec![format!("seed {seed}, a listing every {period:?}")];
        let (random, model, steady) = (Dice(seed), Model::default(), BTreeSet::new());
        Self { random, directory, model, source, done, version: 0, steady }
    }

    fn version(&mut self) -> String {
        self.version += 1;
        format!("v{:05}", self.version)
    }

    fn document(&mut self, is_good: bool) -> (String, Option<String>) {
        let pod = format!("p{}", self.random.roll(PODS));
        (pod, is_good.then(|| self.version()))
    }

    fn content(&mut self) -> Content {
        let first = self.document(true);
        match self.random.roll(8) {
            0 => Content::Broken("kind: ["),
            1 => Content::Broken(""),
            2 => Content::Documents(vec![self.document(false)]),
            kind @ (3 | 4) => {
                let mut second = self.document(kind == 3);
                while second.0 == first.0 {
                    second = self.document(kind == 3);
                }
                Content::Documents(vec![first, second])
            }
            _ => Content::Documents(vec![first]),
        }
    }

    /// Edits files not yet edited in this step: otherwise an intermediate version might or might not be seen.
    fn edit(&mut self, edited: &mut BTreeSet<String>) {
        let name = format!("f{}.yaml", self.random.roll(FILES));
        if !edited.insert(name.clone()) {
            return;
        }
        let path = self.directory.at(&name);
        let beside = self.directory.at(".beside");
        let is_link = self.model.0.get(&name).is_some_and(|file| matches!(file.content, Content::Unreadable));
        match self.random.roll(9) {
            0 => {
                let content = Content::Unreadable;
                self.done.push(format!("{name}: {content:?}"));
                symlink(&name, &beside).expect("a link");
                fs::rename(&beside, &path).expect("renamed");
                self.model.write(&name, content);
            }
            1 | 2 => {
                self.done.push(format!("{name}: removed"));
                assert_eq!(fs::remove_file(&path).is_ok(), self.model.0.remove(&name).is_some());
            }
            3 | 4 => {
                let to = format!("f{}.yaml", self.random.roll(FILES));
                // A moved link is a different link.
                let Some(file) = self.model.0.get(&name).filter(|_| !is_link && !edited.contains(&to)) else {
                    return;
                };
                let content = file.content.clone();
                self.done.push(format!("{name}: renamed to {to}"));
                fs::rename(&path, self.directory.at(&to)).expect("renamed");
                self.model.0.remove(&name);
                self.model.write(&to, content);
                edited.insert(to);
            }
            how => {
                let content = self.content();
                let in_place = how < 7 && !is_link;
                self.done.push(format!("{name}: {content:?}, in place: {in_place}"));
                if in_place {
                    fs::write(&path, content.text()).expect("written");
                } else {
                    fs::write(&beside, content.text()).expect("written");
                    fs::rename(&beside, &path).expect("renamed");
                }
                self.model.write(&name, content);
            }
        }
    }

    /// The result of a listing that began after all previous actions.
    async fn quiet(&mut self) -> Vec<Shown> {
        // A listing already under way may see the first of these.
        self.seen_now().await;
        self.seen_now().await
    }

    async fn seen_now(&mut self) -> Vec<Shown> {
        let version = self.version();
        let sentinel = Content::Documents(vec![("last".to_owned(), Some(version.clone()))]);
        fs::write(self.directory.at(".sentinel"), sentinel.text()).expect("written");
        fs::rename(self.directory.at(".sentinel"), self.directory.at(SENTINEL)).expect("renamed");
        loop {
            let update = tokio::time::timeout(DEADLINE, self.source.next()).await;
            let update = update.unwrap_or_else(|_| panic!("no further set after {:#?}", self.done));
            let Some(SourceUpdate::Set(pods)) = update else { panic!("{update:?} is not a set") };
            let mut shown: Vec<Shown> = pods
                .iter()
                .map(|pod| {
                    let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
                    let name = pod.name().strip_suffix("-n1").expect("the node's name");
                    (name.to_owned(), image.unwrap_or_default())
                })
                .collect();
            for pod in &self.steady {
                assert!(shown.contains(pod), "{pod:?} is missing from {shown:?} after {:#?}", self.done);
            }
            if shown.last().is_some_and(|(pod, image)| pod == "last" && *image == version) {
                shown.pop();
                return shown;
            }
        }
    }

    fn problems(&self) -> Vec<(String, bool)> {
        let status = self.source.status().borrow().clone();
        let mut problems: Vec<_> = status
            .problems
            .iter()
            .map(|problem| {
                let name = problem.origin.rsplit('/').next().unwrap_or_default();
                (name.to_owned(), problem.kind == ProblemKind::Duplicate)
            })
            .collect();
        problems.sort();
        problems
    }

    async fn run(mut self) {
        for step in 0..STEPS {
            let (before, _) = self.model.expected();
            self.done.push(format!("-- step {step}"));
            let mut edited = BTreeSet::new();
            for _ in 0..=self.random.roll(4) {
                self.edit(&mut edited);
            }
            let (expected, problems) = self.model.expected();
            // A pod that is the same before and after, in a file that was not edited, is present all the
            // time.
            let before: BTreeSet<_> = before.into_iter().collect();
            let steady = expected.iter().filter(|(file, _)| !edited.contains(file));
            self.steady = steady.filter(|pod| before.contains(*pod)).map(|(_, pod)| pod.clone()).collect();
            let shown = self.quiet().await;
            let expected: Vec<_> = expected.into_iter().map(|(_, pod)| pod).collect();
            assert_eq!(shown, expected, "after {:#?}", self.done);
            assert_eq!(self.problems(), problems, "after {:#?}", self.done);
        }
    }
}

#[tokio::test]
async fn after_any_history_of_edits_the_pods_are_those_of_each_files_last_valid_content() {
    let histories = (1..=8).map(|seed| History::new(seed).run());
    futures_util::future::join_all(histories).await;
}
