//! A disk that fails again and again, at random, while pods are edited, deleted and added. At every step, each pod that had
//! a file and has existed since then has one, under one UID or another: after a kill, and after a power loss.

use pod_index_test_support::dice::Dice;

use super::*;
use pod_index::{CONFIG_MIRROR_ANNOTATION, Reader, Writer, is_mirror_pod};

/// A pod that is the same for its user when an edit gives it another UID.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Edited {
    name: String,
    is_mirror: bool,
}

impl Edited {
    fn of(pod: &Pod) -> Self {
        Self { name: pod.name().to_owned(), is_mirror: is_mirror_pod(pod) }
    }
}

/// How the disk is during a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Health {
    Good,
    /// Nothing can be written. Removing and renaming still work.
    Full,
    /// Each step may fail.
    Failing,
}

/// What the disk's steps and the test share.
struct Shared {
    /// For messages.
    seed: u64,
    health: Health,
    dice: Dice,
    /// The pods that must have a file at every step.
    required: BTreeSet<Edited>,
}

impl Shared {
    fn check(&self, kept: &BTreeSet<Edited>) {
        let Self { seed, required, .. } = self;
        assert!(kept.is_superset(required), "seed {seed}: {kept:?} lacks some of {required:?}");
    }
}

/// An index whose pods change, and the keeper of their files.
struct Site {
    platter: Arc<Mutex<Platter>>,
    shared: Arc<Mutex<Shared>>,
    keeper: Keeper<FakeDisk>,
    writer: Writer<Pod>,
    reader: Reader<Pod>,
    dice: Dice,
    /// Number of pods made so far.
    made: u64,
}

impl Site {
    fn new(seed: u64) -> Self {
        let platter: Arc<Mutex<Platter>> = Arc::default();
        let shared = Shared { seed, health: Health::Good, dice: Dice(seed), required: BTreeSet::new() };
        let shared = Arc::new(Mutex::new(shared));
        let disk = Self::disk(&platter, &shared);
        let (writer, reader) = pod_index::new();
        let keeper = Keeper::new(disk, Which::Annotated);
        Self { platter, shared, keeper, writer, reader, dice: Dice(seed + 1), made: 0 }
    }

    fn disk(platter: &Arc<Mutex<Platter>>, shared: &Arc<Mutex<Shared>>) -> FakeDisk {
        let before = Arc::clone(platter);
        let shared = Arc::clone(shared);
        FakeDisk::new(platter, move |step| {
            let mut shared = shared.lock().unwrap();
            shared.check(&kept_by_all(&before.lock().unwrap()));
            let fails = match shared.health {
                Health::Good => false,
                Health::Full => matches!(step, Step::Write),
                Health::Failing => shared.dice.roll(3) == 0,
            };
            if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    /// Another pod of this name, which asks for a checkpoint most of the time.
    fn make(&mut self, edited: &Edited) -> Arc<Pod> {
        self.made += 1;
        // Names of files sort up and down, and come back: a manifest that is edited back gives the UID of before.
        let uid = format!("{}-{}-{}", self.dice.roll(4), edited.name, edited.is_mirror);
        let mut made = Arc::unwrap_or_clone(pod(&uid, self.made, self.dice.roll(8) > 0));
        made.metadata.name = Some(edited.name.clone());
        if edited.is_mirror {
            let annotations = made.metadata.annotations.get_or_insert_default();
            annotations.insert(CONFIG_MIRROR_ANNOTATION.to_owned(), "of-static-pod".to_owned());
        }
        Arc::new(made)
    }

    /// Changes one pod. An edit may take two publications, with a pass between them.
    fn change(&mut self) {
        let name = self.dice.pick(&["web", "db"]).to_owned();
        let edited = Edited { name, is_mirror: self.dice.roll(3) == 0 };
        let snapshot = self.reader.snapshot();
        let stored = snapshot.pods().chain(snapshot.mirror_pods());
        let before = stored.filter(|pod| Edited::of(pod) == edited).map(|pod| pod.uid().to_owned()).next();
        let Some(before) = before else {
            let made = self.make(&edited);
            self.writer.upsert_pod(made).unwrap();
            return;
        };
        match self.dice.roll(6) {
            // Deleted.
            0 => drop(self.writer.remove_pod_by_uid(before.as_str())),
            // Another version, with the same UID.
            1 => {
                let mut again = Arc::unwrap_or_clone(self.make(&edited));
                again.metadata.uid = Some(before);
                self.writer.upsert_pod(again).unwrap();
            }
            2 => {
                let made = self.make(&edited);
                self.writer.upsert_pod(made).unwrap();
                self.pass();
                self.writer.remove_pod_by_uid(before.as_str());
            }
            _ => {
                let made = self.make(&edited);
                let operations = [Operation::Remove(PodUid::from(&*before)), Operation::Upsert(made)];
                assert_eq!(self.writer.apply(operations).refused, []);
            }
        }
    }

    /// The pods of the index that have a file when all is written.
    fn wanted(&self) -> Vec<Arc<Pod>> {
        let snapshot = self.reader.load();
        let stored = snapshot.pods().chain(snapshot.mirror_pods());
        stored.filter(|pod| pod.annotation(CHECKPOINT_ANNOTATION) == Some("true")).cloned().collect()
    }

    /// Those of which the newest pod asks for a checkpoint.
    fn needed(&self) -> BTreeSet<Edited> {
        let snapshot = self.reader.load();
        let is_needed = |edited: &Edited| {
            let full_name = format!("{}_ns", edited.name);
            let newest = if edited.is_mirror {
                snapshot.mirror_pod_by_full_name(full_name)
            } else {
                snapshot.pod_by_full_name(full_name)
            };
            newest.is_some_and(|pod| pod.annotation(CHECKPOINT_ANNOTATION) == Some("true"))
        };
        self.wanted().iter().map(|pod| Edited::of(pod)).filter(is_needed).collect()
    }

    fn pass(&mut self) {
        let retry = self.dice.roll(2) == 0;
        let health = [Health::Good, Health::Full, Health::Full, Health::Failing][self.dice.index(4)];
        self.pass_on(health, retry);
    }

    fn pass_on(&mut self, health: Health, retry: bool) {
        let wanted: BTreeSet<_> = self.wanted().iter().map(|pod| Edited::of(pod)).collect();
        let needed = self.needed();
        {
            let mut shared = self.shared.lock().unwrap();
            shared.health = health;
            shared.required.retain(|edited| needed.contains(edited));
        }
        let errors = self.keeper.pass(self.reader.snapshot(), retry);
        let kept = kept_by_all(&self.platter.lock().unwrap());
        let mut shared = self.shared.lock().unwrap();
        shared.check(&kept);
        if errors.is_empty() {
            assert_eq!(kept, wanted, "all is written, and nothing else is there");
        } else if health == Health::Full && retry {
            assert!(kept.is_subset(&wanted), "{kept:?}: a full disk lets files of deleted pods be removed");
        }
        shared.required = &kept & &needed;
    }
}

/// The pods that have a usable file after a kill, and after any power loss.
fn kept_by_all(platter: &Platter) -> BTreeSet<Edited> {
    let mut directories = platter.after_a_loss_of_power();
    directories.push(platter.after_a_kill());
    let kept = directories.iter().map(|directory| {
        let files = directory.iter().filter(|(name, _)| format::is_file_name(name));
        files.filter_map(|(name, bytes)| Some(Edited::of(&format::decode(name, bytes).ok()?.0))).collect()
    });
    kept.reduce(|one: BTreeSet<_>, other| &one & &other).unwrap_or_default()
}

#[test]
fn an_edited_pod_has_a_file_at_every_step_although_the_disk_fails_for_several_passes() {
    let mut most_wrong = 0;
    for seed in 0..30 {
        let mut site = Site::new(seed);
        for _ in 0..40 {
            site.change();
            for _ in 0..site.dice.roll(3) {
                site.pass();
            }
            most_wrong = most_wrong.max(site.keeper.status().wrong);
        }
        site.pass_on(Health::Good, true);
        assert_eq!(site.keeper.status().wrong, 0);
        let wanted: Pods = site.wanted().iter().map(|pod| (pod.uid().to_owned(), version(pod))).collect();
        assert_eq!(found(&site.platter.lock().unwrap().after_a_kill()), wanted);
    }
    assert!(most_wrong > 3, "{most_wrong}: files waited for others");
}
