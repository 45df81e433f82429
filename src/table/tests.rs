//! The tables through what the rest of the crate can use, with a state that has nothing to do with pods: a library of books.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;

use super::versions::{Clearing, Draft, Sharing, State, TableSet, Version, Versions};
use super::{Hashing, Place, Text, Value, Words, any_tag, sync, tables};

struct Book {
    number: u64,
}

/// A value that owns a text beside its item.
struct Lent<V> {
    book: V,
    to: Arc<str>,
}

impl<V: Value> Value for Lent<V> {
    type Item = V::Item;

    fn item(&self) -> &Arc<V::Item> {
        self.book.item()
    }

    fn into_parts(self) -> (Arc<V::Item>, Option<Arc<str>>) {
        (self.book.into_parts().0, Some(self.to))
    }
}

tables! {
    struct Shelves<V> beside {
        rules: String,
    }

    by_number: Words => V,
    by_title: Text => V,
    lent: [Words; 2] => Lent<V>,
}

struct Library<B> {
    generation: u64,
    hashing: Hashing,
    open: Shelves<Arc<B>>,
    archive: Shelves<Arc<B>>,
}

impl<B> State for Library<B> {
    type Item = B;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    fn next(&self, sharing: &Sharing) -> Self {
        Self {
            generation: self.generation + 1,
            hashing: self.hashing.clone(),
            open: self.open.next(sharing),
            archive: self.archive.next(sharing),
        }
    }

    fn clear(&mut self, clearing: &mut Clearing<'_, B>) {
        self.open.clear(clearing);
        self.archive.clear(clearing);
    }
}

/// The places of a book in the three tables.
struct Places {
    number: Place,
    title: Place,
    lent: Place,
}

impl Library<Book> {
    fn new() -> Self {
        Self { generation: 0, hashing: Hashing::new(), open: Shelves::new(), archive: Shelves::new() }
    }

    fn by_number(&self, number: u64) -> Option<(Place, &Arc<Book>)> {
        let hash = self.hashing.words(Words(number, number));
        let is = |key: &Words| *key == Words(number, number);
        let (place, entry) = self.open.by_number.find(hash, any_tag(hash), |entry| is(&entry.key))?;
        Some((place, &entry.value))
    }

    fn by_title(&self, number: u64) -> Option<(Place, &Arc<Book>)> {
        let title = title(number);
        let hash = self.hashing.pair(&title, "title");
        let is = |key: &Text| key.is(title.as_bytes(), b"title");
        let (place, entry) = self.open.by_title.find(hash, any_tag(hash), |entry| is(&entry.key))?;
        Some((place, &entry.value))
    }

    fn lent(&self, number: u64) -> Option<(Place, &Lent<Arc<Book>>)> {
        let hash = self.hashing.four_words([number; 4]);
        let is = |key: &[Words; 2]| *key == [Words(number, number); 2];
        let (place, entry) = self.open.lent.find(hash, any_tag(hash), |entry| is(&entry.key))?;
        Some((place, &entry.value))
    }

    fn places(&self, number: u64) -> Option<Places> {
        Some(Places {
            number: self.by_number(number)?.0,
            title: self.by_title(number)?.0,
            lent: self.lent(number)?.0,
        })
    }
}

/// Some are too long for an entry.
fn title(number: u64) -> String {
    format!("the book number {number}, {}", "and so on ".repeat(usize::from(number.is_multiple_of(7)) * 5))
}

/// Everything that a test makes, so that what is dropped too often, too early or never is seen.
#[derive(Default)]
struct Made {
    books: Vec<Arc<Book>>,
    texts: Vec<Arc<str>>,
    /// The titles that are too long for an entry.
    titles: Vec<Arc<[u8]>>,
}

impl Made {
    fn book(&mut self, number: u64) -> Arc<Book> {
        self.books.push(Arc::new(Book { number }));
        Arc::clone(&self.books[self.books.len() - 1])
    }

    fn reader(&mut self) -> Arc<str> {
        self.texts.push("reader".into());
        Arc::clone(&self.texts[self.texts.len() - 1])
    }

    fn title(&mut self, number: u64) -> Text {
        let title = Text::new(title(number).as_bytes(), b"title");
        if let Text::Elsewhere { bytes, .. } = &title {
            self.titles.push(Arc::clone(bytes));
        }
        title
    }

    /// Whether nothing but this has them.
    fn are_alone(&self) -> bool {
        self.books.iter().all(|book| Arc::strong_count(book) == 1)
            && self.texts.iter().all(|text| Arc::strong_count(text) == 1)
            && self.titles.iter().all(|title| Arc::strong_count(title) == 1)
    }
}

/// Puts a book into all open tables, over the one with its number.
fn put(draft: &mut Draft<'_, Library<Book>>, number: u64, made: &mut Made) {
    let book = made.book(number);
    let lent = Lent { book: Arc::clone(&book), to: made.reader() };
    let places = draft.places(number);
    let mut open = draft.tables_mut(|library| &mut library.open);
    let hashing = open.hashing;
    if let Some(places) = places {
        open.of(|shelves| &mut shelves.by_number).replace(places.number, Arc::clone(&book));
        open.of(|shelves| &mut shelves.by_title).replace(places.title, book);
        open.of(|shelves| &mut shelves.lent).replace(places.lent, lent);
        return;
    }
    let tagged = |hash: u64| -> (u64, NonZero<u8>) { (hash, any_tag(hash)) };
    let (hash, tag) = tagged(hashing.words(Words(number, number)));
    open.of(|shelves| &mut shelves.by_number).insert(hash, tag, Words(number, number), Arc::clone(&book));
    let (hash, tag) = tagged(hashing.pair(title(number), "title"));
    open.of(|shelves| &mut shelves.by_title).insert(hash, tag, made.title(number), book);
    let (hash, tag) = tagged(hashing.four_words([number; 4]));
    open.of(|shelves| &mut shelves.lent).insert(hash, tag, [Words(number, number); 2], lent);
}

/// Moves a book to the archive.
fn remove(draft: &mut Draft<'_, Library<Book>>, number: u64) {
    let Some(places) = draft.places(number) else { return };
    let book = draft.by_number(number).map(|(_, book)| Arc::clone(book)).expect("it has a place");
    let mut open = draft.tables_mut(|library| &mut library.open);
    open.of(|shelves| &mut shelves.by_number).remove(places.number);
    open.of(|shelves| &mut shelves.by_title).remove(places.title);
    open.of(|shelves| &mut shelves.lent).remove(places.lent);
    let mut archive = draft.tables_mut(|library| &mut library.archive);
    let hash = archive.hashing.words(Words(number, number));
    let known = archive.by_number.find(hash, any_tag(hash), |entry| entry.key == Words(number, number));
    if let Some((place, _)) = known {
        archive.of(|shelves| &mut shelves.by_number).replace(place, book);
    } else {
        let mut table = archive.of(|shelves| &mut shelves.by_number);
        table.insert(hash, any_tag(hash), Words(number, number), book);
    }
}

/// The address of each book of a version.
type Plain = BTreeMap<u64, usize>;

fn address(book: &Arc<Book>) -> usize {
    Arc::as_ptr(book).addr()
}

#[track_caller]
fn check(library: &Library<Book>, plain: &Plain) {
    let Shelves { by_number, by_title, lent, rules } = &library.open;
    assert_eq!([by_number.len(), by_title.len(), lent.len()], [plain.len(); 3]);
    assert_eq!(
        *rules,
        if library.generation == 0 { String::new() } else { format!("{} books", plain.len()) }
    );
    let walked: Plain = by_number.iter().map(|entry| (entry.value.number, address(&entry.value))).collect();
    assert_eq!(walked, *plain);
    for (&number, &book) in plain {
        assert_eq!(library.by_number(number).map(|(_, found)| address(found)), Some(book));
        assert_eq!(library.by_title(number).map(|(_, found)| address(found)), Some(book));
        let (_, lent) = library.lent(number).expect("in all tables");
        assert_eq!((address(&lent.book), &*lent.to), (book, "reader"));
    }
}

/// A number below `below`, from a sequence that is the same in each run.
fn next(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn versions_of_any_state_stay_as_they_are_and_leave_nothing() {
    for seed in 0..8 {
        let mut random = seed;
        let mut made = Made::default();
        let mut versions = Versions::new(Library::new());
        let published = versions.published().clone();
        let mut cached = published.cached();
        let mut current = Plain::new();
        let mut held: Vec<(sync::Arc<Version<Library<Book>>>, Plain)> = Vec::new();
        for _ in 0..100 {
            let mut plain = current.clone();
            let mut draft = versions.draft();
            if next(&mut random, 20) == 0 {
                draft.tables_mut(|library| &mut library.open).clear(40);
                plain.clear();
            }
            for _ in 0..next(&mut random, 12) {
                let number = next(&mut random, 60);
                if next(&mut random, 3) == 0 {
                    remove(&mut draft, number);
                    plain.remove(&number);
                } else {
                    put(&mut draft, number, &mut made);
                    plain.insert(number, address(&made.books[made.books.len() - 1]));
                }
            }
            let rules = format!("{} books", plain.len());
            *draft.tables_mut(|library| &mut library.open).beside(|shelves| &mut shelves.rules) = rules;
            check(&draft, &plain);
            if next(&mut random, 5) == 0 {
                // The changes are undone.
                drop(draft);
            } else {
                draft.publish().reclaim_some(2);
                current = plain;
                assert_eq!(published.load().generation, cached.load().generation);
            }
            if next(&mut random, 3) == 0 {
                held.push((published.load_full(), current.clone()));
            }
            if held.len() > 6 {
                held.swap_remove(usize::try_from(next(&mut random, 6)).unwrap_or_default());
            }
            for (version, plain) in &held {
                check(version, plain);
            }
        }
        let last = published.load_full();
        drop(versions);
        check(&last, &current);
        drop((last, held, cached));
        drop(published);
        assert!(made.are_alone(), "each is dropped, once");
    }
}

/// The writer's end lists what the last version has, once.
#[test]
fn versions_that_nobody_reads_leave_nothing() {
    let mut made = Made::default();
    let mut versions = Versions::new(Library::new());
    let mut draft = versions.draft();
    (0..300).for_each(|number| put(&mut draft, number, &mut made));
    draft.publish().reclaim_all();
    drop(versions);
    assert!(made.are_alone(), "each is dropped, once");
}
