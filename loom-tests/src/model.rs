//! The index's module `table::sync` for the models: the published cell and the parking of threads, on loom's or shuttle's
//! atomics. The cell has arc-swap's guarantees:
//!
//! - *One* atomic word holds the current value's number and how many of its loads have not yet reached its
//!   own count. So a load reads the value and is counted in one step, and a swap settles the loads of the
//!   value it replaces. That is arc-swap's contract (its debts, paid by the swap). How arc-swap fulfils it is
//!   not modelled.
//! - Each value has its own count, with the orderings of [`std::sync::Arc`], and a [`Witness`] that is
//!   written when the value is created, read at each access, and written again when the value is freed. Only
//!   the cell's orderings and the count order those accesses. If they do not, loom reports a data race.
//! - State behind std's `Mutex` and `Arc` is bookkeeping that the explorers do not see: it orders nothing and
//!   is not a step of its own. None of its locks is held across a step.
//!
//! The tools' own `park` is not used: loom's `unpark` wakes a thread from any wait, including a lock.

use std::ops::Deref;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(pod_index_loom)]
use loom as tool;
#[cfg(pod_index_shuttle)]
use shuttle as tool;
use tool::sync::Condvar;
pub(crate) use tool::sync::Mutex;
pub(crate) use tool::sync::atomic::{AtomicBool, AtomicI64};
use tool::sync::atomic::{AtomicUsize, Ordering, fence};
use tool::thread_local;

/// A counted reference like [`std::sync::Arc`] that detects uses after the value was freed.
pub(crate) struct Arc<T>(std::sync::Arc<Counted<T>>);

struct Counted<T> {
    /// Number of references to the value, plus [`IN_CELL`] while it is current.
    count: AtomicUsize,
    witness: Witness,
    value: T,
}

/// More than all loads of one value. Guards may be dropped before the cell has settled their loads; this
/// keeps the count of the current value above zero until then.
const IN_CELL: usize = 1 << 16;

impl<T> Arc<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::sync::Arc::new(Counted { count: AtomicUsize::new(1), witness: Witness::new(), value }))
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.witness.read();
        &self.0.value
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        Self(std::sync::Arc::clone(&self.0))
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        // The run has already failed; another step would hide the reason.
        if std::thread::panicking() {
            return;
        }
        if self.0.count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            self.0.witness.free();
            FREED.with(|freed| freed.set(freed.get() + 1));
        }
    }
}

thread_local! {
    static FREED: std::cell::Cell<usize> = std::cell::Cell::new(0);
}

/// Number of values freed by the calling thread.
#[must_use]
pub fn freed_by_this_thread() -> usize {
    FREED.with(std::cell::Cell::get)
}

pub(crate) fn is_sole_owner<T>(value: &mut Arc<T>) -> bool {
    // The quick check of the real one, and `std::sync::Arc::get_mut`.
    value.0.count.load(Ordering::Relaxed) == 1 && value.0.count.load(Ordering::Acquire) == 1
}

/// Records who creates, reads and frees a value.
struct Witness {
    /// The mutex makes it `Sync`; loom does not see it.
    #[cfg(pod_index_loom)]
    cell: std::sync::Mutex<loom::cell::UnsafeCell<()>>,
    freed: std::sync::atomic::AtomicBool,
}

impl Witness {
    fn new() -> Self {
        let witness = Self {
            #[cfg(pod_index_loom)]
            cell: std::sync::Mutex::new(loom::cell::UnsafeCell::new(())),
            freed: std::sync::atomic::AtomicBool::new(false),
        };
        witness.write();
        witness
    }

    fn read(&self) {
        assert!(!self.freed.load(std::sync::atomic::Ordering::SeqCst), "a value is read after it was freed");
        #[cfg(pod_index_loom)]
        unseen(&self.cell).with(|_| ());
    }

    fn free(&self) {
        self.freed.store(true, std::sync::atomic::Ordering::SeqCst);
        self.write();
    }

    fn write(&self) {
        #[cfg(pod_index_loom)]
        unseen(&self.cell).with_mut(|_| ());
    }
}

/// Locks a mutex that the explorers do not see.
fn unseen<T>(mutex: &std::sync::Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Published<T>(std::sync::Arc<Cell<T>>);

struct Cell<T> {
    /// The number of the current value, above the count of its loads.
    current: AtomicUsize,
    /// The current value. It always matches `current`, because no step lies between the two updates.
    value: std::sync::Mutex<Arc<T>>,
    leftover: std::sync::Mutex<Vec<Arc<T>>>,
}

/// Bits of [`Cell::current`] that count loads.
const LOADS: u32 = 16;

impl<T> Published<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        value.0.count.fetch_add(IN_CELL, Ordering::Relaxed);
        Self(std::sync::Arc::new(Cell {
            current: AtomicUsize::new(0),
            value: std::sync::Mutex::new(value),
            leftover: std::sync::Mutex::default(),
        }))
    }

    pub(crate) fn load(&self) -> Guard<T> {
        Guard(self.load_full())
    }

    pub(crate) fn load_full(&self) -> Arc<T> {
        self.load_with_number().1
    }

    fn load_with_number(&self) -> (usize, Arc<T>) {
        let current = self.0.current.fetch_add(1, Ordering::Acquire);
        let value = std::sync::Arc::clone(&unseen(&self.0.value).0);
        (current >> LOADS, Arc(value))
    }

    pub(crate) fn swap(&self, value: Arc<T>) -> Arc<T> {
        value.0.count.fetch_add(IN_CELL, Ordering::Relaxed);
        // Only the writer changes the number, so this reads the latest one.
        let number = (self.0.current.load(Ordering::Relaxed) >> LOADS) + 1;
        let current = self.0.current.swap(number << LOADS, Ordering::AcqRel);
        let old = std::mem::replace(&mut *unseen(&self.0.value), value);
        old.settle(current);
        old
    }

    pub(crate) fn cached(&self) -> Cached<T> {
        let (number, value) = self.load_with_number();
        Cached { published: self.clone(), number, value }
    }

    pub(crate) fn leave_behind(&self, values: impl IntoIterator<Item = Arc<T>>) {
        unseen(&self.0.leftover).extend(values);
    }
}

impl<T> Arc<T> {
    /// Called when this value is replaced; `current` contains the number of its loads.
    fn settle(&self, current: usize) {
        let loads = current % (1 << LOADS);
        self.0.count.fetch_sub(IN_CELL - loads, Ordering::AcqRel);
    }
}

impl<T> Clone for Published<T> {
    fn clone(&self) -> Self {
        Self(std::sync::Arc::clone(&self.0))
    }
}

impl<T> Drop for Cell<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let current = self.current.fetch_add(0, Ordering::AcqRel);
            unseen(&self.value).settle(current);
        }
    }
}

pub(crate) struct Guard<T>(Arc<T>);

impl<T> Deref for Guard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

pub(crate) struct Cached<T> {
    published: Published<T>,
    /// The number of `value`. Numbers are never reused, just as the address of a held value is not.
    number: usize,
    value: Arc<T>,
}

impl<T> Cached<T> {
    pub(crate) fn load(&mut self) -> &Arc<T> {
        // As in `arc_swap::Cache`: the check for a new value is relaxed, loading it is not.
        if self.published.0.current.load(Ordering::Relaxed) >> LOADS != self.number {
            (self.number, self.value) = self.published.load_with_number();
        }
        &self.value
    }
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self { published: self.published.clone(), number: self.number, value: self.value.clone() }
    }
}

/// Like the one on std's parking.
pub(crate) struct Parker {
    unparked: Mutex<bool>,
    sleeps: Condvar,
}

impl Parker {
    pub(crate) fn of_this_thread() -> Self {
        Self { unparked: Mutex::new(false), sleeps: Condvar::new() }
    }

    /// The explorers have no time: the limit is never reached.
    pub(crate) fn park(&self, _limit: Option<Duration>) {
        let mut unparked = self.unparked.lock().expect("no panic");
        while !*unparked {
            unparked = self.sleeps.wait(unparked).expect("no panic");
        }
        *unparked = false;
    }

    pub(crate) fn unpark(&self) {
        *self.unparked.lock().expect("no panic") = true;
        self.sleeps.notify_one();
    }
}

/// Whether the run of a model has failed, so that another step would hide the reason.
pub(crate) fn has_failed() -> bool {
    std::thread::panicking()
}
