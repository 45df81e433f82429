//! The table with colliding hashes, which cannot be caused from outside because hashing is seeded. And its
//! memory: many versions are created and dropped in any order; everything that a remaining version needs
//! exists, and nothing else does.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::pool as audit;
use super::{Array, Chunk, Entry, Hashing, MAX_LEN, Memory, PRESIZE_LOAD, Side, Table, TableMut, each_entry};
use crate::table::{DeadList, OlderVersion, Place, TableKey, any_tag};

#[path = "../../../tests/support/seeded.rs"]
mod seeded;

/// An item that differs from all others, and the generation in which it was stored.
#[derive(Debug)]
struct Token(usize);

/// A key under a chosen hash.
#[derive(Clone)]
struct Chosen {
    hash: u64,
    text: Arc<[u8]>,
}

impl TableKey for Chosen {
    fn hash(&self, _: &Hashing) -> u64 {
        self.hash
    }

    fn into_text(self) -> Option<Arc<[u8]>> {
        Some(self.text)
    }
}

thread_local! {
    /// A reference to every token, so that a token dropped too often is detected before it is freed.
    static TOKENS: RefCell<Vec<Arc<Token>>> = const { RefCell::new(Vec::new()) };
    /// The same for the texts of keys.
    static TEXTS: RefCell<Vec<Arc<[u8]>>> = const { RefCell::new(Vec::new()) };
}

fn token() -> Arc<Token> {
    TOKENS.with_borrow_mut(|tokens| {
        tokens.push(Arc::new(Token(tokens.len())));
        Arc::clone(&tokens[tokens.len() - 1])
    })
}

/// The expected content of a table: the token for each hash and key.
type Plain = BTreeMap<(u64, u32), usize>;
type Tokens = Table<Chosen, Arc<Token>>;

/// A version of the table, with a plain map of its expected content.
struct Version {
    generation: u64,
    table: Tokens,
    plain: Plain,
}

/// All held versions of a table. Does for a table what `versions` does for snapshots.
struct Versions {
    hashing: Hashing,
    memory: Memory<Token>,
    current: Version,
    /// By ascending generation, with what the next one does not have.
    retired: Vec<(Version, DeadList<Token>)>,
    draft: Option<Version>,
    /// Nodes and tokens that belong to other tests.
    others: (BTreeSet<usize>, usize),
}

impl Version {
    fn entry(&self, hash: u64, key: u32) -> Option<(Place, &Entry<Chosen, Arc<Token>>)> {
        let is = |entry: &Entry<Chosen, _>| entry.key.hash == hash && *entry.key.text == key.to_ne_bytes();
        self.table.find(hash, any_tag(hash), is)
    }

    fn find(&self, hash: u64, key: u32) -> Option<usize> {
        Some(self.entry(hash, key)?.1.value.0)
    }

    fn put(&mut self, hash: u64, key: u32, memory: &mut Memory<Token>, hashing: &Hashing) {
        let token = token();
        self.plain.insert((hash, key), token.0);
        let known = self.entry(hash, key).map(|(place, _)| place);
        // SAFETY: the table belongs to the draft.
        let mut table = unsafe { TableMut::new(&mut self.table, memory, hashing) };
        if let Some(place) = known {
            table.replace(place, token);
        } else {
            let text: Arc<[u8]> = key.to_ne_bytes().into();
            TEXTS.with_borrow_mut(|texts| texts.push(Arc::clone(&text)));
            table.insert(hash, any_tag(hash), Chosen { hash, text }, token);
        }
    }

    fn remove(&mut self, hash: u64, key: u32, memory: &mut Memory<Token>, hashing: &Hashing) {
        self.plain.remove(&(hash, key));
        let known = self.entry(hash, key).map(|(place, _)| place);
        // SAFETY: the table belongs to the draft.
        let mut table = unsafe { TableMut::new(&mut self.table, memory, hashing) };
        if let Some(place) = known {
            table.remove(place);
        }
    }

    /// The table has exactly the map's entries.
    #[track_caller]
    fn check(&self) {
        let Self { table, plain, .. } = self;
        assert_eq!(table.len(), plain.len());
        let chunks = table.root.children();
        for link in chunks.iter().flat_map(Array::children) {
            let mut page = Some(link.page());
            while let Some(this) = page {
                assert!(this.fits(), "a page of more lines than its entries need");
                page = this.next();
                assert!(page.is_none() || this.len() == MAX_LEN, "a page that is not full has one behind it");
            }
        }
        for (&(hash, key), &token) in plain {
            assert_eq!(self.find(hash, key), Some(token), "{key} under {hash:#x}");
        }
        assert_eq!(table.iter().len(), plain.len());
        let number = |text: &[u8]| u32::from_ne_bytes(text.try_into().expect("a number"));
        let walked = table.iter().map(|entry| ((entry.key.hash, number(&entry.key.text)), entry.value.0));
        assert_eq!(walked.collect::<Plain>(), *plain);
    }

    /// `compare` reports exactly the differences between the two.
    #[track_caller]
    fn check_differences(&self, old: &Self) {
        let mut before = BTreeSet::new();
        let mut after = BTreeSet::new();
        let told = self.table.compare(&old.table, |side, entry| {
            let reported = if side == Side::Old { &mut before } else { &mut after };
            assert!(reported.insert(entry.value.0), "reported twice");
            ControlFlow::Continue(())
        });
        assert!(told.is_continue());
        let tokens = |plain: &Plain| plain.values().copied().collect::<BTreeSet<_>>();
        let mine = tokens(&self.plain);
        let theirs = tokens(&old.plain);
        assert!(before.is_subset(&theirs) && after.is_subset(&mine), "each side reports what it has");
        assert_eq!(&before - &after, &theirs - &mine);
        assert_eq!(&after - &before, &mine - &theirs);
    }

    /// Number of pages with at least one entry, and number of links to pages.
    fn pages(&self) -> (usize, usize) {
        let mut used = 0;
        let links = self.table.root.children().iter().flat_map(Array::children);
        let count = links
            .inspect(|link| {
                used += usize::from(each_entry::<Entry<Chosen, Arc<Token>>>(link).next().is_some());
            })
            .count();
        (used, count)
    }
}

/// The addresses of all nodes of a table, each of which must exist.
fn collect(
    root: &Array<Chunk<Entry<Chosen, Arc<Token>>>>,
    in_use: &BTreeSet<usize>,
    found: &mut BTreeSet<usize>,
) {
    let mut add = |address: Option<usize>| {
        if let Some(address) = address {
            assert!(in_use.contains(&address), "a node was freed while a version has it");
            found.insert(address);
        }
    };
    add(root.address());
    for chunk in root.children() {
        add(chunk.address());
        for link in chunk.children() {
            std::iter::successors(Some(link.page()), |page| page.next()).for_each(|page| add(page.address()));
        }
    }
}

impl Versions {
    fn new() -> Self {
        Self {
            hashing: Hashing::new(),
            memory: Memory::default(),
            current: Version { generation: 0, table: Table::new(), plain: Plain::new() },
            retired: Vec::new(),
            draft: None,
            others: (audit::in_use(), TOKENS.with_borrow(Vec::len)),
        }
    }

    fn of(entries: impl IntoIterator<Item = (u64, u32)>) -> Self {
        let mut versions = Self::new();
        entries.into_iter().for_each(|(hash, key)| versions.put(hash, key));
        versions.publish();
        versions
    }

    fn draft(&mut self) -> (&mut Version, &mut Memory<Token>, &Hashing) {
        let Version { generation, table, plain } = &self.current;
        let draft = self.draft.get_or_insert_with(|| {
            // SAFETY: there is no other draft.
            unsafe { self.memory.begin(generation + 1) };
            // SAFETY: the current version is kept, and `publish` or `abandon` gets only this draft.
            Version { generation: generation + 1, table: unsafe { table.draft() }, plain: plain.clone() }
        });
        (draft, &mut self.memory, &self.hashing)
    }

    fn put(&mut self, hash: u64, key: u32) {
        let (draft, memory, hashing) = self.draft();
        draft.put(hash, key, memory, hashing);
    }

    fn remove(&mut self, hash: u64, key: u32) {
        let (draft, memory, hashing) = self.draft();
        draft.remove(hash, key, memory, hashing);
    }

    fn clear(&mut self, capacity: usize) {
        let (draft, memory, hashing) = self.draft();
        draft.plain.clear();
        // SAFETY: the table belongs to the draft.
        unsafe { TableMut::new(&mut draft.table, memory, hashing) }.clear(capacity);
    }

    fn abandon(&mut self) {
        if let Some(mut draft) = self.draft.take() {
            // SAFETY: the table belongs to the draft, which ends here.
            unsafe { TableMut::new(&mut draft.table, &mut self.memory, &self.hashing) }.clear(0);
            self.memory.cancel();
        }
    }

    /// The previous version stays until it is released.
    fn publish(&mut self) {
        let Some(draft) = self.draft.take() else { return };
        let dead = self.memory.end();
        let old = std::mem::replace(&mut self.current, draft);
        self.retired.push((old, dead));
        self.memory.drop_items();
    }

    /// Does what `versions` does when a version is no longer held.
    fn release(&mut self, at: usize) {
        let (version, dead) = self.retired.remove(at);
        let older = at.checked_sub(1).map(|older| &mut self.retired[older]);
        let older = older.map(|(older, dead)| OlderVersion { generation: older.generation, dead });
        drop(version);
        // SAFETY: the version is dropped, and the remaining ones are in order.
        unsafe { self.memory.distribute(dead, older) };
        self.memory.drop_items();
    }

    fn release_all(&mut self) {
        while !self.retired.is_empty() {
            self.release(self.retired.len() / 2);
        }
    }

    fn held(&self) -> impl Iterator<Item = &Version> {
        self.retired.iter().map(|(version, _)| version).chain([&self.current])
    }

    /// Number of this test's nodes.
    fn nodes(&self) -> usize {
        audit::in_use().difference(&self.others.0).count()
    }

    /// Every version equals its map. Exactly the entries and nodes of some version exist.
    #[track_caller]
    fn check(&self) {
        self.check_entries();
        let in_use = audit::in_use();
        let mut found = BTreeSet::new();
        self.held().for_each(|version| collect(&version.table.root, &in_use, &mut found));
        if self.draft.is_none() {
            assert_eq!(&in_use - &self.others.0, found, "a node is kept that no version has");
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
        TOKENS.with_borrow(|tokens| {
            for (number, token) in tokens.iter().enumerate().skip(self.others.1) {
                let counts = Arc::strong_count(token) - 1;
                if needed.contains(&number) {
                    assert_eq!(counts, 1, "token {number}, which a version has");
                } else if self.draft.is_none() {
                    assert_eq!(counts, 0, "token {number}, which no version has");
                }
            }
        });
        if self.draft.is_none() {
            // A text has one owner more for each entry that has it.
            let references: usize =
                TEXTS.with_borrow(|texts| texts.iter().map(|text| Arc::strong_count(text) - 1).sum());
            assert_eq!(needed.len(), references, "each entry has a text");
        }
    }

    /// Drops everything, the remaining versions at the same time.
    fn leave(mut self) {
        self.abandon();
        self.clear(0);
        let mut dead = self.memory.end();
        for (_, list) in self.retired.drain(..) {
            // SAFETY: there is one index.
            unsafe { dead.append(list) };
        }
        // SAFETY: no version is used again.
        unsafe { dead.free() };
        assert_eq!(audit::in_use(), self.others.0, "every node is given back");
        let all = TOKENS.with_borrow(|all| all[self.others.1..].iter().all(|it| Arc::strong_count(it) == 1));
        assert!(all, "every entry is dropped once");
        let all = TEXTS.with_borrow(|all| all.iter().all(|text| Arc::strong_count(text) == 1));
        assert!(all, "every text is dropped");
    }
}

/// More than fits into a few pages.
const MANY: u32 = 400;

#[test]
fn any_number_of_entries_with_one_hash_are_distinguished() {
    for hash in [0, 1, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
        let mut all = Versions::of((0..MANY).map(|key| (hash, key)));
        all.check();
        let (used, links) = all.current.pages();
        assert_eq!(used, 1, "one chain of pages");
        assert!(links <= 8 * MANY as usize, "{links} links: growing does not help");
        assert_eq!(all.current.find(hash, MANY), None, "no other entry is found for them");
        assert_eq!(all.current.find(hash ^ 1, 0), None, "nor they for another hash");
        all.put(hash, MANY / 2);
        all.publish();
        all.check();

        // From the front, the back and the middle, until none is left.
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
fn hashes_that_agree_in_all_but_their_lowest_bits_are_distinguished() {
    for (above, below) in [(0xabcd_ef01_2345_6780, 16), (u64::MAX, 1), (0, 2)] {
        let hash = |key: u32| above ^ u64::from(key % below);
        let mut all = Versions::of((0..2 * MANY).map(|key| (hash(key), key)));
        all.check();
        (0..2 * MANY).step_by(3).for_each(|key| all.remove(hash(key), key));
        all.publish();
        all.check();
        all.leave();
    }
}

/// Some colliding hashes do not prevent the others from having their own pages, or the table from growing.
#[test]
fn a_chain_stays_while_the_table_grows() {
    let same = (0..60).map(|key| (spread(7), key));
    let all = Versions::of(same.chain((1000..9000).map(|key| (spread(key), key))));
    all.check();
    let (used, _) = all.current.pages();
    assert!(used > 8000 / MAX_LEN, "{used} pages");
    all.leave();
}

#[test]
fn hashes_that_differ_in_any_single_bit_are_distinguished() {
    for bit in 0..u64::BITS {
        let hash = |key: u32| u64::from(key % 2) << bit;
        let mut all = Versions::of((0..300).map(|key| (hash(key), key)));
        (0..300).filter(|key| key % 5 != 0).for_each(|key| all.remove(hash(key), key));
        all.publish();
        all.check();
        all.leave();
    }
}

#[test]
fn an_empty_table_takes_no_memory() {
    let mut all = Versions::new();
    assert_eq!(all.nodes(), 0);
    all.put(1, 1);
    all.remove(1, 1);
    all.publish();
    all.check();
    all.leave();
}

/// With twice as many entries, every array is at most twice as long, and pages are half full on average.
#[test]
fn arrays_are_sized_to_the_set() {
    for count in [20, 100, 1_000, 10_000, 60_000] {
        let mut all = Versions::of((0..count).map(|key| (scatter(key), key)));
        let root = all.current.table.root.children().len();
        let (used, links) = all.current.pages();
        let longest = all.current.table.root.children().iter().map(|chunk| chunk.children().len()).max();
        assert!(longest.is_some_and(|longest| longest <= 2 * root), "{count}: {longest:?} beside {root}");
        let count = count as usize;
        assert!((3..=12).contains(&(count / links)), "{count} entries, {links} links, {used} pages");
        all.release_all();
        all.leave();
    }
}

#[test]
fn a_table_that_was_large_frees_its_nodes() {
    let mut all = Versions::of((0..20_000).map(|key| (scatter(key), key)));
    (0..20_000).skip(3).for_each(|key| all.remove(scatter(key), key));
    all.publish();
    all.release_all();
    all.check();
    assert!(all.nodes() <= 8, "{} nodes for three entries", all.nodes());
    all.leave();
}

/// No single removal pays for all earlier ones, and no insertion pays for all later ones, except for the
/// root's growth, which moves only links.
#[test]
fn shrinking_touches_one_chunk_at_a_time() {
    const COUNT: u32 = 3_000;
    let mut all = Versions::of((0..COUNT).map(|key| (scatter(key), key)));
    let root = all.current.table.root.children().len();
    let mut most = 0;
    for key in 0..COUNT {
        all.remove(scatter(key), key);
        all.publish();
        let (_, dead) = &all.retired[all.retired.len() - 1];
        most = most.max(dead.nodes());
        all.release_all();
    }
    assert!(most <= 4 * root + 2, "{most} nodes were replaced by one removal; the root has {root} chunks");
    assert!(all.nodes() <= 2, "{} nodes for nothing", all.nodes());
    all.check();
    all.leave();
}

/// Any number of entries is found, whatever was expected; if as many arrive as expected, the arrays keep
/// their shape.
#[test]
fn a_table_with_enough_reserved_pages_keeps_its_shape() {
    for expected in [0, 1, 31, 32, 500, 1_984, 1_985, 20_000, 60_000] {
        let mut all = Versions::of((0..50).map(|key| (spread(key), key)));
        all.clear(expected);
        let links = all.draft().0.pages().1;
        let root = all.draft().0.table.root.children();
        assert!((root.len()..=2 * root.len()).contains(&root[0].children().len()), "{} chunks", root.len());
        assert!(
            (expected / PRESIZE_LOAD..=2 * expected / PRESIZE_LOAD + 2).contains(&links),
            "{links} links"
        );
        (0..u32::try_from(expected).expect("not many")).for_each(|key| all.put(spread(key), key));
        assert_eq!(all.draft().0.pages().1, links, "{expected} come");
        (200_000..200_100).for_each(|key| all.put(spread(key), key));
        all.publish();
        all.release_all();
        all.check();
        all.leave();
    }
}

/// As `mem::forget` of a draft would do: it leaks what it has, and what it dropped is still the current version's.
#[test]
#[cfg_attr(pod_index_no_pool, ignore = "it leaks a draft on purpose, which a sanitizer reports")]
fn a_forgotten_draft_leaves_nothing_to_die_with_the_next_one() {
    let mut all = Versions::of((0..MANY).map(|key| (spread(key), key)));
    (0..MANY).for_each(|key| all.put(spread(key), key));
    std::mem::forget(all.draft.take());
    let dead = all.draft().1.end();
    assert_eq!(dead.nodes(), 0);
    std::mem::forget(std::mem::take(&mut all.draft));
    all.current.check();
    std::mem::forget(all);
}

#[test]
fn a_draft_that_writes_nothing_shares_everything() {
    let mut all = Versions::of((0..MANY).map(|key| (spread(key), key)));
    all.release_all();
    let nodes = all.nodes();
    all.draft();
    all.publish();
    assert_eq!(all.nodes(), nodes);
    all.check();
    all.leave();
}

/// Comparing shared nodes only costs time.
#[test]
fn a_comparison_of_two_versions_skips_shared_nodes() {
    let mut all = Versions::of((0..20_000).map(|key| (spread(key), key)));
    all.put(spread(7), 7);
    all.publish();
    let [(_, _), (old, _)] = &all.retired[..] else { panic!("two versions came before") };
    let mut told = 0;
    let _ = all.current.table.compare(&old.table, |_, _| {
        told += 1;
        ControlFlow::Continue(())
    });
    assert!((2..=2 * MAX_LEN).contains(&told), "{told} entries, of two pages");
    let mut told = 0;
    let _ = all.current.table.compare(&old.table, |_, _| {
        told += 1;
        ControlFlow::Break(())
    });
    assert_eq!(told, 1, "and no more than is asked for");
    all.check();
    all.leave();
}

/// What died between the second version and the third was born with the first one, which is still held.
#[test]
fn what_an_older_version_has_outlives_a_newer_one() {
    let mut all = Versions::of((0..MANY).map(|key| (spread(key), key)));
    all.release_all();
    for key in [1, 2] {
        all.put(spread(key), key);
        all.publish();
    }
    all.release(1);
    all.check();
    all.release_all();
    all.check();
    all.leave();
}

/// A held version costs what it contains, regardless of later changes.
#[test]
fn one_held_version_keeps_no_later_nodes() {
    let mut all = Versions::of((0..2000).map(|key| (spread(key), key)));
    all.release_all();
    let mut nodes = BTreeSet::new();
    for round in 0..200 {
        (0..20).for_each(|key| all.put(spread(key), key));
        all.publish();
        // The first one stays, like that of a sleeping reader.
        while all.retired.len() > 1 {
            all.release(1);
        }
        if round % 20 == 0 {
            all.check();
            nodes.insert(all.nodes());
        }
    }
    assert_eq!(nodes.len(), 1, "as many nodes after each round: {nodes:?}");
    all.leave();
}

/// Evenly distributed over all hashes.
fn spread(key: u32) -> u64 {
    u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Randomly distributed.
fn scatter(key: u32) -> u64 {
    let z = spread(key + 1);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u64, u32),
    Remove(u64, u32),
    PutMany(u32),
    RemoveMany(u32),
    Clear(usize),
    Abandon,
    Publish,
    Release(prop::sample::Index),
}

/// Six hashes, most of which agree in all bits used by arrays, and some distributed ones.
fn step() -> impl Strategy<Value = Step> {
    let hash = || prop::sample::select(vec![0, 1, 1 << 63, u64::MAX, u64::MAX - 1, u64::MAX >> 4]);
    prop_oneof![
        8 => (hash(), 0u32..100).prop_map(|(hash, key)| Step::Put(hash, key)),
        4 => (hash(), 0u32..100).prop_map(|(hash, key)| Step::Remove(hash, key)),
        4 => (0u32..300).prop_map(|key| Step::Put(scatter(key), key)),
        2 => (0u32..300).prop_map(|key| Step::Remove(scatter(key), key)),
        2 => (0u32..300).prop_map(Step::PutMany),
        1 => (0u32..300).prop_map(Step::RemoveMany),
        1 => prop::sample::select(vec![0, 40, 3_000]).prop_map(Step::Clear),
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
            Step::PutMany(count) => (0..count).for_each(|key| self.put(scatter(key), key)),
            Step::RemoveMany(count) => (0..count).for_each(|key| self.remove(scatter(key), key)),
            Step::Clear(capacity) => self.clear(capacity),
            Step::Abandon => self.abandon(),
            Step::Publish => self.publish(),
            Step::Release(which) if !self.retired.is_empty() => self.release(which.index(self.retired.len())),
            Step::Release(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(seeded::seeded(256))]

    #[test]
    fn versions_dropped_in_any_order_keep_exactly_what_they_need(
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
