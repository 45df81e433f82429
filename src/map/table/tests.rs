//! The table where hashes do not help: nothing outside can bring that about, since hashing is seeded, so it is brought
//! about here. And its memory: many versions of it live and die in any order, and what each still needs is there, and
//! nothing else is.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::stock::audit;
use super::{
    BUCKET, Branch, Entry, FAN, FAN_BITS, Garbage, Hashing, MAX_BUCKETS, MAX_DEPTH, Node, Page, Side, Slot,
    Table, buckets_for, home,
};

thread_local! {
    /// How often each token was dropped.
    static DROPS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Something that is told from all others and must be dropped once. It owns nothing, so a test outlives its being dropped
/// twice.
#[derive(Debug)]
struct Token(usize);

impl Token {
    fn new() -> Self {
        DROPS.with_borrow_mut(|drops| {
            drops.push(0);
            Self(drops.len() - 1)
        })
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        DROPS.with_borrow_mut(|drops| drops[self.0] += 1);
    }
}

/// An entry that says itself how it hashes.
struct Filed {
    hash: u64,
    key: u32,
    token: Option<Token>,
}

impl Entry for Filed {
    const VACANT: Self = Self { hash: 0, key: u32::MAX, token: None };

    fn hash(&self, _: &Hashing) -> u64 {
        self.hash
    }
}

/// The only tag that the tests give.
const TAG: u64 = 5;

/// What must be in a table: the token under each hash and key.
type Plain = BTreeMap<(u64, u32), usize>;

/// A version of the table, and beside it a plain map that says what must be in it.
struct Version {
    generation: u64,
    table: Table<Filed>,
    plain: Plain,
}

/// All versions of a table that somebody holds: what `versions` does with snapshots, done with a table.
struct Versions {
    hashing: Hashing,
    current: Version,
    /// By ascending generation, with what the next one has not.
    retired: Vec<(Version, Garbage<Filed>)>,
    draft: Option<Version>,
    /// What is not this test's.
    others: (BTreeSet<usize>, usize),
}

impl Version {
    fn find(&self, hash: u64, key: u32) -> Option<usize> {
        let matches = |entry: &Filed| (entry.hash, entry.key) == (hash, key);
        let slot = self.table.find(hash, matches, |slot| !slot.is_vacant())?;
        assert_eq!(slot.tag(), TAG);
        slot.entry().token.as_ref().map(|token| token.0)
    }

    fn put(&mut self, hash: u64, key: u32, hashing: &Hashing) {
        let token = Token::new();
        let id = token.0;
        let is = |slot: &Slot<Filed>| (slot.entry().hash, slot.entry().key) == (hash, key);
        let entry = || Filed { hash, key, token: Some(token) };
        if self.plain.insert((hash, key), id).is_some() {
            assert!(self.table.replace(hash, |entry| entry.hash == hash, is, entry(), TAG));
        } else {
            self.table.insert(entry(), TAG, hashing);
        }
    }

    fn remove(&mut self, hash: u64, key: u32, hashing: &Hashing) {
        let is = |slot: &Slot<Filed>| (slot.entry().hash, slot.entry().key) == (hash, key);
        self.table.remove(hash, |entry| entry.hash == hash, is, hashing);
        self.plain.remove(&(hash, key));
    }

    /// All that is in the map is in the table, and nothing else.
    #[track_caller]
    fn check(&self) {
        assert_eq!(self.table.len(), self.plain.len());
        let mut taken = 0;
        each_node(self.table.root.branch(), 0, &mut |node, _| {
            if let Node::Page(page) = node {
                assert!(page.span() <= FAN_BITS);
                let slots = page.buckets.iter().flat_map(|bucket| &bucket.0);
                assert_eq!(slots.filter(|slot| !slot.is_vacant()).count(), page.taken());
                assert!(page.taken() <= room(page.buckets.len()), "more than two thirds are taken");
                taken += page.taken();
            }
        });
        assert_eq!(taken, self.plain.len(), "a page that counts wrongly grows at the wrong time");
        for (&(hash, key), &token) in &self.plain {
            assert_eq!(self.find(hash, key), Some(token), "{key} under {hash:#x}");
        }
        let iter = self.table.iter();
        assert_eq!(iter.len(), self.plain.len());
        let entries = iter.map(Slot::entry);
        let walked =
            entries.map(|entry| ((entry.hash, entry.key), entry.token.as_ref().map_or(0, |it| it.0)));
        assert_eq!(walked.collect::<Plain>(), self.plain);
    }

    /// What `compare` says lies between the two, does, and nothing else.
    #[track_caller]
    fn check_differences(&self, old: &Self) {
        let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
        let mut note = |side: Side<&Slot<Filed>>| match side {
            Side::Old(slot) => assert!(before.insert(slot.entry().token.as_ref().map(|token| token.0))),
            Side::New(slot) => assert!(after.insert(slot.entry().token.as_ref().map(|token| token.0))),
        };
        self.table.compare(&old.table, &mut note);
        let tokens = |plain: &Plain| plain.values().copied().map(Some).collect::<BTreeSet<_>>();
        let (mine, theirs) = (tokens(&self.plain), tokens(&old.plain));
        assert!(before.is_subset(&theirs) && after.is_subset(&mine), "each side is told what it has");
        assert_eq!(&before - &after, &theirs - &mine);
        assert_eq!(&after - &before, &mine - &theirs);
    }

    /// How many buckets each page has.
    fn pages(&self) -> Vec<usize> {
        let mut pages = Vec::new();
        each_node(self.table.root.branch(), 0, &mut |node, _| {
            if let Node::Page(page) = node {
                pages.push(page.buckets.len());
            }
        });
        pages
    }

    /// How many branches are on the longest way down, and how many buckets the largest page has.
    fn shape(&self) -> (u32, usize) {
        let (mut depth, mut buckets) = (0, 0);
        each_node(self.table.root.branch(), 0, &mut |node, at| {
            depth = depth.max(at);
            if let Node::Page(page) = node {
                buckets = buckets.max(page.buckets.len());
            }
        });
        (depth, buckets)
    }
}

/// How many entries a page is to hold: two thirds of what it has slots for.
fn room(buckets: usize) -> usize {
    buckets * BUCKET * 2 / 3
}

/// Calls `each` with every node below `branch`, and with how many branches are above it.
fn each_node<'a>(branch: &'a Branch<Filed>, depth: u32, each: &mut impl FnMut(Node<'a, Filed>, u32)) {
    let mut at = 0;
    while at < FAN {
        each(branch.child(at), depth + 1);
        if let Node::Branch(below) = branch.child(at) {
            each_node(below, depth + 1, each);
        }
        at = branch.after(at);
    }
}

fn address(node: &Node<'_, Filed>) -> usize {
    match node {
        Node::Branch(branch) => std::ptr::from_ref::<Branch<Filed>>(branch).addr(),
        Node::Page(Page { buckets, .. }) => buckets.as_ptr().addr() - 64,
    }
}

/// The addresses of all nodes below `branch`, each of which must be there.
fn collect(branch: &Branch<Filed>, out: &BTreeSet<usize>, found: &mut BTreeSet<usize>) {
    let here = address(&Node::Branch(branch));
    assert!(out.contains(&here), "a branch was freed while a version has it");
    if !found.insert(here) {
        return;
    }
    for at in 0..FAN {
        let child = branch.child(at);
        let there = address(&child);
        assert!(out.contains(&there), "a node was freed while a version has it");
        match child {
            Node::Branch(below) => collect(below, out, found),
            Node::Page(_) => _ = found.insert(there),
        }
    }
}

impl Versions {
    fn new() -> Self {
        let others = (audit::handed_out(), DROPS.with_borrow(Vec::len));
        let current = Version { generation: 0, table: Table::new(), plain: Plain::new() };
        Self { hashing: Hashing::new(), current, retired: Vec::new(), draft: None, others }
    }

    fn of(entries: impl IntoIterator<Item = (u64, u32)>) -> Self {
        let mut versions = Self::new();
        entries.into_iter().for_each(|(hash, key)| versions.put(hash, key));
        versions.publish();
        versions
    }

    fn draft(&mut self) -> &mut Version {
        let Version { generation, table, plain } = &self.current;
        self.draft.get_or_insert_with(|| Version {
            generation: generation + 1,
            // SAFETY: the current version is kept, and `publish` is given this draft alone.
            table: unsafe { table.draft(generation + 1) },
            plain: plain.clone(),
        })
    }

    fn put(&mut self, hash: u64, key: u32) {
        let hashing = self.hashing.clone();
        self.draft().put(hash, key, &hashing);
    }

    fn remove(&mut self, hash: u64, key: u32) {
        let hashing = self.hashing.clone();
        self.draft().remove(hash, key, &hashing);
    }

    fn instead(&mut self, entries: usize) {
        let draft = self.draft();
        draft.table = draft.table.instead(entries);
        draft.plain.clear();
    }

    fn abandon(&mut self) {
        self.draft = None;
    }

    /// The version before stays, until it is released.
    fn publish(&mut self) {
        let Some(mut draft) = self.draft.take() else { return };
        let mut garbage = draft.table.publish();
        garbage.drop_scrap();
        let old = std::mem::replace(&mut self.current, draft);
        self.retired.push((old, garbage));
    }

    /// As `versions` does it when nobody holds a snapshot any more.
    fn release(&mut self, at: usize) {
        let (version, garbage) = self.retired.remove(at);
        let older = at.checked_sub(1).map(|older| &mut self.retired[older]);
        let older = older.map(|(older, garbage)| (older.generation, garbage));
        drop(version);
        // SAFETY: the version is gone, and those that are left are in order.
        unsafe { garbage.hand_on(older) };
    }

    fn release_all(&mut self) {
        while !self.retired.is_empty() {
            self.release(self.retired.len() / 2);
        }
    }

    fn held(&self) -> impl Iterator<Item = &Version> {
        self.retired.iter().map(|(version, _)| version).chain([&self.current])
    }

    /// Every version answers as its own map. What any of them has is there, and nothing else is: neither an entry nor
    /// a node.
    #[track_caller]
    fn check(&self) {
        self.check_entries();
        let out = audit::handed_out();
        let mut found = BTreeSet::new();
        self.held().for_each(|version| collect(version.table.root.branch(), &out, &mut found));
        if self.draft.is_none() {
            assert_eq!(&out - &self.others.0, found, "a node is kept that no version has");
        }
        self.held().for_each(Version::check);
        self.draft.iter().for_each(Version::check);
        for (version, next) in self.held().zip(self.held().skip(1)) {
            next.check_differences(version);
            version.check_differences(&self.current);
        }
    }

    #[track_caller]
    fn check_entries(&self) {
        let needed: BTreeSet<usize> =
            self.held().flat_map(|version| version.plain.values().copied()).collect();
        let drops = DROPS.with_borrow(Clone::clone);
        for (token, &drops) in drops.iter().enumerate().skip(self.others.1) {
            assert!(drops <= 1, "entry {token} was dropped {drops} times");
            if needed.contains(&token) {
                assert_eq!(drops, 0, "entry {token} was dropped while a version has it");
            } else if self.draft.is_none() {
                assert_eq!(drops, 1, "entry {token} is kept, though no version has it");
            }
        }
    }

    /// Everybody goes, those that are left at the same moment.
    fn leave(mut self) {
        self.abandon();
        let mut remains = self.current.table.remains();
        for (_, garbage) in self.retired.drain(..) {
            remains.append(garbage);
        }
        // SAFETY: nobody looks at a version again.
        unsafe { remains.hand_on(None) };
        assert_eq!(audit::handed_out(), self.others.0, "every node is given back");
        let all_once = DROPS.with_borrow(|drops| drops[self.others.1..].iter().all(|&drops| drops == 1));
        assert!(all_once, "every entry is dropped once");
    }
}

/// More than fit into the largest page that can be split.
const MANY: u32 = 400;

#[test]
fn any_number_of_entries_with_one_hash_are_told_apart() {
    for hash in [0, 1, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
        let mut all = Versions::of((0..MANY).map(|key| (hash, key)));
        all.check();
        let (depth, buckets) = all.current.shape();
        assert_eq!(depth, MAX_DEPTH + 1, "branches as deep as they get, which part nothing");
        assert!(buckets > MAX_BUCKETS + 1, "{buckets} buckets: below them the page grows on");
        assert_eq!(all.current.find(hash, MANY), None, "nobody else is found for them");
        assert_eq!(all.current.find(hash ^ 1, 0), None, "nor they for somebody else");

        // From the front, from the back and from between, until none is left.
        for step in 0..MANY {
            let key = if step % 2 == 0 { step / 2 } else { MANY - 1 - step / 2 };
            all.remove(hash, key);
            all.publish();
            if step % 64 == 0 {
                all.check();
            }
            if all.retired.len() > 3 {
                all.release(all.retired.len() / 2);
            }
        }
        all.release_all();
        all.check();
        all.leave();
    }
}

#[test]
fn a_page_below_the_deepest_branch_tells_apart_what_no_branch_can() {
    for (above, below) in [(0xabcd_ef01_2345_6780, 16), (u64::MAX, 1), (0, 2)] {
        let hash = |key: u32| above ^ u64::from(key % below);
        let mut all = Versions::of((0..2 * MANY).map(|key| (hash(key), key)));
        all.check();
        let (depth, buckets) = all.current.shape();
        assert_eq!(depth, MAX_DEPTH + 1);
        assert!(buckets > MAX_BUCKETS + 1, "{buckets} buckets");
        (0..2 * MANY).step_by(3).for_each(|key| all.remove(hash(key), key));
        all.publish();
        all.check();
        all.leave();
    }
}

#[test]
fn the_deepest_branch_parts_what_differs_in_its_bits_alone() {
    let lowest = u64::BITS - (MAX_DEPTH + 1) * FAN_BITS;
    let all = Versions::of((0..1280).map(|key| (u64::from(key % 64) << lowest, key)));
    all.check();
    let (depth, buckets) = all.current.shape();
    assert_eq!(depth, MAX_DEPTH + 1);
    assert!(buckets <= MAX_BUCKETS, "{buckets} buckets, though a page could have been split");
    all.leave();
}

/// Whichever bit it is in which two halves of the entries differ first: a branch, or a bucket, tells them apart.
#[test]
fn hashes_that_differ_in_a_single_bit_are_told_apart_whichever_it_is() {
    for bit in 0..u64::BITS {
        let hash = |key: u32| u64::from(key % 2) << bit;
        let mut all = Versions::of((0..300).map(|key| (hash(key), key)));
        (0..300).filter(|key| key % 5 != 0).for_each(|key| all.remove(hash(key), key));
        all.publish();
        all.check();
        all.leave();
    }
}

/// What overflows the last bucket of a page is in its first ones, and moves back when there is room.
#[test]
fn what_overflows_the_last_bucket_is_found_in_the_first_and_moves_back() {
    // Hashes that agree in the high bits, so that they share a page, and whose low ones say the last bucket or the first.
    for (wrapping, others) in [(4, 0), (9, 12), (20, 20)] {
        let last = (0..wrapping).map(|key| (0xffff_ffff, key));
        let first = (0..others).map(|key| (0, 1000 + key));
        let mut all = Versions::of(last.chain(first));
        all.check();
        assert_eq!(all.current.shape().0, 1, "one page");
        // Any one of them may be the first to go.
        for (hash, key) in all.current.plain.clone().into_keys() {
            all.remove(hash, key);
            all.check();
            all.abandon();
        }
        all.check();
        all.leave();
    }
}

#[test]
fn the_bucket_where_a_search_starts_goes_by_the_low_half_of_the_hash_alone() {
    for buckets in 1..=2 * MAX_BUCKETS {
        for high in [0, 0xabcd_0123_0000_0000] {
            assert_eq!(home(high, buckets), 0);
            assert_eq!(home(high | 0x8000_0000, buckets), buckets / 2);
            assert_eq!(home(high | 0xffff_ffff, buckets), buckets - 1);
        }
    }
}

#[test]
fn a_page_is_made_with_room_for_an_eighth_more_as_long_as_it_can_still_be_split() {
    for entries in 0..500 {
        let (buckets, roomy) = (buckets_for(entries), entries * 9 / 8);
        assert!(room(buckets) >= entries, "{buckets} buckets for {entries}");
        if buckets < MAX_BUCKETS {
            assert!((roomy..roomy + 3).contains(&room(buckets)), "{buckets} buckets for {entries}");
        } else if buckets > MAX_BUCKETS {
            assert!(room(buckets - 1) <= entries, "{buckets} buckets for {entries}");
        }
    }
}

#[test]
fn a_page_grows_when_it_is_two_thirds_full_and_is_split_when_it_has_its_most_buckets() {
    let mut all = Versions::new();
    let mut pages = vec![1];
    for key in 0..1000 {
        all.put(spread(key), key);
        let now = all.draft().pages();
        if pages.len() == 1 && now != pages {
            assert_eq!(usize::try_from(key), Ok(room(pages[0])), "{pages:?} is full");
            if pages[0] < MAX_BUCKETS {
                assert_eq!(now, [buckets_for(room(pages[0]) + 1)], "and grows");
            } else {
                assert_eq!(now.len(), 2, "and is split");
            }
        }
        assert!(now.iter().all(|&buckets| buckets <= MAX_BUCKETS), "{now:?}");
        pages = now;
    }
    all.publish();
    all.check();
    all.leave();
}

#[test]
fn a_table_that_was_large_gives_its_pages_back() {
    let mut all = Versions::of((0..20_000).map(|key| (spread(key), key)));
    assert!(all.current.shape().0 > 1, "twenty thousand need branches below the root");
    (0..20_000).skip(3).for_each(|key| all.remove(spread(key), key));
    all.publish();
    all.check();
    let (depth, buckets) = all.current.shape();
    assert!(depth == 1 && buckets <= 4, "three fit into a small page");
    all.release_all();
    all.check();
    assert!(audit::handed_out().len() - all.others.0.len() < 70, "and the large one is gone");
    all.leave();
}

/// However many were expected and however many come, all are found; and if as many come as were expected, no page was made
/// in vain, and none has to be split.
#[test]
fn a_table_with_room_for_what_comes_has_its_shape_beforehand() {
    for expected in [0, 1, 31, 32, 500, 1_984, 1_985, 20_000, 150_000] {
        let mut all = Versions::of((0..50).map(|key| (spread(key), key)));
        all.instead(expected);
        let slots = all.draft().pages().into_iter().sum::<usize>() * BUCKET;
        assert!((expected..=expected * 5 / 4 + 8).contains(&slots), "{slots} slots for {expected}");
        let nodes = audit::handed_out().len();
        (0..u32::try_from(expected).expect("not many")).for_each(|key| all.put(spread(key), key));
        assert_eq!(audit::handed_out().len(), nodes, "{expected} come");
        let (depth, _) = all.draft().shape();
        assert!(
            depth <= 1 + u32::from(expected > 1_984) + u32::from(expected > 126_976),
            "{expected}: {depth} deep"
        );
        (200_000..200_100).for_each(|key| all.put(spread(key), key));
        all.publish();
        all.release_all();
        all.check();
        all.leave();
    }
}

#[test]
fn room_for_what_does_not_come_is_given_back_with_the_first_that_goes() {
    let mut all = Versions::of([]);
    all.instead(20_000);
    (0..100).for_each(|key| all.put(spread(key), key));
    assert!(all.draft().shape().0 > 1);
    all.remove(spread(0), 0);
    assert_eq!(all.draft().shape().0, 1, "the rest fits below the root");
    all.publish();
    all.release_all();
    all.check();
    all.leave();
}

/// A path that is copied for nothing costs time alone, so no other test would see it.
#[test]
fn a_write_that_finds_nothing_copies_nothing() {
    let mut all = Versions::of((0..MANY).map(|key| (spread(key), key)));
    let nodes = audit::handed_out();
    let hashing = all.hashing.clone();
    let draft = all.draft();
    let filed = || Filed { hash: 0, key: 0, token: None };
    assert!(!draft.table.replace(0, |_| true, |_| false, filed(), TAG));
    draft.table.remove(0, |_| true, |_| false, &hashing);
    assert_eq!(draft.table.len(), draft.plain.len());
    assert_eq!(audit::handed_out(), nodes);
    all.publish();
    all.check();
    assert_eq!(audit::handed_out(), nodes, "the two versions share all they have");
    all.leave();
}

/// To look at what two versions share costs time alone.
#[test]
fn what_lies_between_two_versions_is_told_without_a_look_at_what_they_share() {
    let mut all = Versions::of((0..20_000).map(|key| (spread(key), key)));
    assert!(all.current.shape().0 > 1, "twenty thousand need branches below the root");
    all.put(spread(7), 7);
    all.publish();
    let [(_, _), (old, _)] = &all.retired[..] else { panic!("two versions came before") };
    let mut told = 0;
    all.current.table.compare(&old.table, &mut |_| told += 1);
    assert!((2..=2 * room(MAX_BUCKETS)).contains(&told), "{told} slots, of two pages");
    all.check();
    all.leave();
}

/// What a held version costs is what it has: not a byte for all that came and went since.
#[test]
fn one_held_version_keeps_nothing_that_came_after_it() {
    let mut all = Versions::of((0..2000).map(|key| (spread(key), key)));
    all.release_all();
    let mut nodes = BTreeSet::new();
    for round in 0..200 {
        (0..20).for_each(|key| all.put(spread(key), key));
        all.publish();
        // The first stays, as if a reader had gone to sleep.
        while all.retired.len() > 1 {
            all.release(1);
        }
        if round % 20 == 0 {
            all.check();
            nodes.insert(audit::handed_out().len());
        }
    }
    assert_eq!(nodes.len(), 1, "as many nodes after each round: {nodes:?}");
    all.leave();
}

fn spread(key: u32) -> u64 {
    u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u64, u32),
    Remove(u64, u32),
    PutMany(u32),
    RemoveMany(u32),
    Instead(usize),
    Abandon,
    Publish,
    Release(prop::sample::Index),
}

/// Six hashes, most of which agree in all bits that branches or small pages go by; and some that are spread.
fn step() -> impl Strategy<Value = Step> {
    let hash = || prop::sample::select(vec![0, 1, 1 << 63, u64::MAX, u64::MAX - 1, u64::MAX >> 4]);
    prop_oneof![
        8 => (hash(), 0u32..100).prop_map(|(hash, key)| Step::Put(hash, key)),
        4 => (hash(), 0u32..100).prop_map(|(hash, key)| Step::Remove(hash, key)),
        4 => (0u32..300).prop_map(|key| Step::Put(spread(key), key)),
        2 => (0u32..300).prop_map(|key| Step::Remove(spread(key), key)),
        1 => (0u32..300).prop_map(Step::PutMany),
        1 => (0u32..300).prop_map(Step::RemoveMany),
        1 => prop::sample::select(vec![0, 40, 3_000]).prop_map(Step::Instead),
        1 => Just(Step::Abandon),
        8 => Just(Step::Publish),
        7 => any::<prop::sample::Index>().prop_map(Step::Release),
    ]
}

impl Versions {
    fn take(&mut self, step: Step) {
        match step {
            Step::Put(hash, key) => self.put(hash, key),
            Step::Remove(hash, key) => self.remove(hash, key),
            Step::PutMany(count) => (0..count).for_each(|key| self.put(spread(key), key)),
            Step::RemoveMany(count) => (0..count).for_each(|key| self.remove(spread(key), key)),
            Step::Instead(entries) => self.instead(entries),
            Step::Abandon => self.abandon(),
            Step::Publish => self.publish(),
            Step::Release(which) if !self.retired.is_empty() => self.release(which.index(self.retired.len())),
            Step::Release(_) => {}
        }
    }
}

proptest! {
    #[test]
    fn versions_that_live_and_die_in_any_order_have_what_is_theirs_and_nothing_more(
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut all = Versions::new();
        for (at, step) in steps.into_iter().enumerate() {
            all.take(step);
            all.check_entries();
            if at % 8 == 0 {
                all.check();
            }
        }
        all.abandon();
        all.check();
        if all.current.generation.is_multiple_of(2) {
            all.release_all();
            all.check();
        }
        all.leave();
    }
}
