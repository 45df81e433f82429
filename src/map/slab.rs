//! A persistent store of values by number: a radix tree whose leaves hold a few values each.
//!
//! The index maps lead to numbers, not to pods, so that an update of a known pod writes one path here and touches no
//! map. Pages are small because a page that is written is copied, and a copy counts every pointer it holds.
//!
//! Each value carries a mark, and the marked ones can be walked over without a look at the others.

use std::hint::black_box;
use std::sync::Arc;

/// The values of a leaf. Few: to copy them counts references that are scattered over all pods.
const LEAF_BITS: u32 = 3;
const LEAF: usize = 1 << LEAF_BITS;
/// The children of a branch.
const FAN_BITS: u32 = 4;
const FAN: usize = 1 << FAN_BITS;
/// Numbers have this many bits.
const NUMBER_BITS: u32 = 28;
/// The most pages on the way to a value.
const DEPTH: usize = 1 + (NUMBER_BITS - LEAF_BITS).div_ceil(FAN_BITS) as usize;
/// Every child of a branch full, or every slot to be visited.
const ALL: u16 = u16::MAX;

#[derive(Clone)]
pub(crate) struct Slab<T> {
    root: Option<Arc<Node<T>>>,
    /// How far a number is shifted to the right to index the root: 0 if the root is a leaf.
    shift: u32,
    /// The numbers below this one have a place in the tree as tall as it is.
    capacity: u32,
    len: usize,
    marked: usize,
}

#[derive(Clone)]
enum Node<T> {
    Leaf {
        /// Bit i: value i is marked.
        marked: u16,
        values: [Option<T>; LEAF],
    },
    Branch {
        /// Bit i: no room is left below child i.
        full: u16,
        /// Bit i: something below child i is marked.
        marked: u16,
        children: [Option<Arc<Node<T>>>; FAN],
    },
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { root: None, shift: 0, capacity: 1 << LEAF_BITS, len: 0, marked: 0 }
    }
}

impl<T> Slab<T> {
    /// The most values that a slab numbers.
    pub(crate) const MAX_LEN: usize = 1 << NUMBER_BITS;

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many values are marked.
    pub(crate) fn marked_len(&self) -> usize {
        self.marked
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        if number >= self.capacity {
            return None;
        }
        let mut shift = self.shift;
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Branch { children, .. } => {
                    node = children[child_slot(number, shift)].as_deref()?;
                    shift = below(shift);
                }
                Node::Leaf { values, .. } => return values[leaf_slot(number)].as_ref(),
            }
        }
    }

    /// All values, by ascending number.
    pub(crate) fn iter(&self) -> Iter<'_, T> {
        Iter::new(self, false, self.len)
    }

    /// The marked values, by ascending number.
    pub(crate) fn iter_marked(&self) -> Iter<'_, T> {
        Iter::new(self, true, self.marked)
    }
}

impl<T: Value> Slab<T> {
    /// Stores `value`, unmarked, under the smallest free number. Nothing is stored if the slab is full.
    pub(crate) fn insert(&mut self, value: T) -> Option<u32> {
        if self.len == Self::MAX_LEN {
            return None;
        }
        match &self.root {
            None => self.root = Some(Arc::new(Node::leaf())),
            Some(root) if root.is_full() => {
                let root = Node::branch(self.root.take());
                self.root = Some(Arc::new(root));
                self.shift = if self.shift == 0 { LEAF_BITS } else { self.shift + FAN_BITS };
                self.capacity <<= FAN_BITS;
            }
            Some(_) => {}
        }
        let number = own(self.root.as_mut()?).insert(self.shift, value);
        self.len += 1;
        Some(number)
    }

    /// The value under `number`, to change.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        // A miss must not copy the path.
        self.get(number)?;
        let mut shift = self.shift;
        let mut node = own(self.root.as_mut()?);
        loop {
            match node {
                Node::Branch { children, .. } => {
                    node = own(children[child_slot(number, shift)].as_mut()?);
                    shift = below(shift);
                }
                Node::Leaf { values, .. } => return values[leaf_slot(number)].as_mut(),
            }
        }
    }

    /// Marks the value under `number`, or takes its mark away.
    pub(crate) fn mark(&mut self, number: u32, mark: bool) {
        // What is marked already must not copy the path.
        if self.get(number).is_none() || self.is_marked(number) == mark {
            return;
        }
        if let Some(root) = &mut self.root {
            own(root).mark(number, self.shift, mark);
            self.marked = if mark { self.marked + 1 } else { self.marked - 1 };
        }
    }

    fn is_marked(&self, number: u32) -> bool {
        let mut shift = self.shift;
        let mut node = self.root.as_deref();
        while let Some(Node::Branch { children, .. }) = node {
            node = children[child_slot(number, shift)].as_deref();
            shift = below(shift);
        }
        matches!(node, Some(Node::Leaf { marked, .. }) if marked & 1 << leaf_slot(number) != 0)
    }

    /// Takes the value under `number` out; pages that are empty then go.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.get(number)?;
        self.mark(number, false);
        let root = own(self.root.as_mut()?);
        let value = root.remove(number, self.shift);
        self.len -= 1;
        if root.is_empty() {
            *self = Self::default();
        }
        value
    }

    /// Calls `differs` with the two values of every number at which `old` and `self` may differ. Pages that the two
    /// share are skipped.
    pub(crate) fn compare<'a>(
        &'a self,
        old: &'a Self,
        differs: &mut impl FnMut(Option<&'a T>, Option<&'a T>),
    ) {
        compare((old.root.as_ref(), old.shift), (self.root.as_ref(), self.shift), differs);
    }
}

/// What a [`Slab`] stores.
pub(crate) trait Value: Clone {
    /// Reads the memory that cloning will write.
    fn touch(&self) -> usize;
}

impl<T> Value for Arc<T> {
    fn touch(&self) -> usize {
        Arc::strong_count(self)
    }
}

/// The page, to change: this one if nobody shares it, else a copy.
///
/// A copy counts one reference for each slot, all over memory, and a processor does such counts one after the other,
/// each waiting for its cache line. So the lines are fetched first, all at once, by looking at the counts.
fn own<T: Value>(node: &mut Arc<Node<T>>) -> &mut Node<T> {
    if Arc::strong_count(node) > 1 {
        black_box(match &**node {
            Node::Leaf { values, .. } => values.iter().flatten().map(Value::touch).sum::<usize>(),
            Node::Branch { children, .. } => children.iter().flatten().map(Value::touch).sum(),
        });
    }
    Arc::make_mut(node)
}

#[inline]
fn leaf_slot(number: u32) -> usize {
    number as usize % LEAF
}

/// Which child of a branch that is `shift` bits above the values `number` belongs to.
#[inline]
fn child_slot(number: u32, shift: u32) -> usize {
    (number >> shift) as usize % FAN
}

/// How far the children of a branch are above the values.
#[inline]
fn below(shift: u32) -> u32 {
    shift.saturating_sub(FAN_BITS)
}

impl<T> Node<T> {
    fn leaf() -> Self {
        Self::Leaf { marked: 0, values: [const { None }; LEAF] }
    }

    fn branch(first: Option<Arc<Self>>) -> Self {
        let full = u16::from(first.as_ref().is_some_and(|first| first.is_full()));
        let marked = u16::from(first.as_ref().is_some_and(|first| first.has_marks()));
        let mut children = [const { None }; FAN];
        children[0] = first;
        Self::Branch { full, marked, children }
    }

    fn is_full(&self) -> bool {
        match self {
            Self::Leaf { values, .. } => values.iter().all(Option::is_some),
            Self::Branch { full, .. } => *full == ALL,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Leaf { values, .. } => values.iter().all(Option::is_none),
            Self::Branch { children, .. } => children.iter().all(Option::is_none),
        }
    }

    fn has_marks(&self) -> bool {
        match self {
            Self::Leaf { marked, .. } | Self::Branch { marked, .. } => *marked != 0,
        }
    }
}

impl<T: Value> Node<T> {
    /// Stores `value` in the first free slot below; there must be one.
    fn insert(&mut self, shift: u32, value: T) -> u32 {
        match self {
            Self::Leaf { values, .. } => {
                let at = values.iter().position(Option::is_none).unwrap_or_default();
                values[at] = Some(value);
                u32::try_from(at).unwrap_or_default()
            }
            Self::Branch { full, children, .. } => {
                let at = full.trailing_ones();
                let below = below(shift);
                let child = children[at as usize % FAN].get_or_insert_with(|| {
                    Arc::new(if below == 0 { Self::leaf() } else { Self::branch(None) })
                });
                let child = own(child);
                let number = child.insert(below, value);
                if child.is_full() {
                    *full |= 1 << at;
                }
                at << shift | number
            }
        }
    }

    fn mark(&mut self, number: u32, shift: u32, mark: bool) {
        let (marks, at, has_marks) = match self {
            Self::Leaf { marked, .. } => (marked, leaf_slot(number), mark),
            Self::Branch { marked, children, .. } => {
                let at = child_slot(number, shift);
                let Some(child) = &mut children[at] else { return };
                let child = own(child);
                child.mark(number, below(shift), mark);
                (marked, at, child.has_marks())
            }
        };
        *marks = *marks & !(1 << at) | u16::from(has_marks) << at;
    }

    fn remove(&mut self, number: u32, shift: u32) -> Option<T> {
        match self {
            Self::Leaf { values, .. } => values[leaf_slot(number)].take(),
            Self::Branch { full, children, .. } => {
                let at = child_slot(number, shift);
                let child = own(children[at].as_mut()?);
                let value = child.remove(number, below(shift));
                *full &= !(1 << at);
                if child.is_empty() {
                    children[at] = None;
                }
                value
            }
        }
    }
}

/// A page, or nothing, and how far above the values it stands.
type At<'a, T> = (Option<&'a Arc<Node<T>>>, u32);

fn compare<'a, T>(old: At<'a, T>, new: At<'a, T>, differs: &mut impl FnMut(Option<&'a T>, Option<&'a T>)) {
    if let (Some(old), Some(new)) = (old.0, new.0)
        && Arc::ptr_eq(old, new)
    {
        return;
    }
    if old.0.is_none() && new.0.is_none() {
        return;
    }
    // A slab grows at the root: what was the root is child 0 of the taller one.
    let shift = old.1.max(new.1);
    if shift == 0 {
        for at in 0..LEAF {
            let (old, new) = (value_at(old.0, at), value_at(new.0, at));
            if old.is_some() || new.is_some() {
                differs(old, new);
            }
        }
        return;
    }
    for at in 0..FAN {
        compare(child_at(old, at, shift), child_at(new, at, shift), differs);
    }
}

fn value_at<T>(node: Option<&Arc<Node<T>>>, at: usize) -> Option<&T> {
    match node.map(|node| &**node) {
        Some(Node::Leaf { values, .. }) => values[at].as_ref(),
        _ => None,
    }
}

fn child_at<T>((node, own): At<'_, T>, at: usize, shift: u32) -> At<'_, T> {
    if own < shift {
        return (node.filter(|_| at == 0), own);
    }
    let child = match node.map(|node| &**node) {
        Some(Node::Branch { children, .. }) => children[at].as_ref(),
        _ => None,
    };
    (child, below(shift))
}

/// Some values of a slab, by ascending number: all, or the marked ones.
pub(crate) struct Iter<'a, T> {
    /// The pages on the way down to the next value, of which the first `depth` count. An array, so that walking over a
    /// snapshot allocates nothing.
    path: [Level<'a, T>; DEPTH],
    depth: usize,
    marked_only: bool,
    left: usize,
}

/// A page, and which of its slots are still to be visited.
struct Level<'a, T> {
    node: Option<&'a Node<T>>,
    slots: u16,
}

impl<'a, T> Iter<'a, T> {
    fn new(slab: &'a Slab<T>, marked_only: bool, left: usize) -> Self {
        let path = [const { Level { node: None, slots: 0 } }; DEPTH];
        let mut iter = Self { path, depth: 0, marked_only, left };
        if let Some(root) = &slab.root {
            iter.enter(root);
        }
        iter
    }

    fn enter(&mut self, node: &'a Node<T>) {
        let (Node::Leaf { marked, .. } | Node::Branch { marked, .. }) = node;
        if let Some(level) = self.path.get_mut(self.depth) {
            *level = Level { node: Some(node), slots: if self.marked_only { *marked } else { ALL } };
            self.depth += 1;
        }
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            let level = &mut self.path[self.depth.checked_sub(1)?];
            let at = level.slots.trailing_zeros() as usize;
            // The lowest bit goes; 0 stays 0.
            level.slots &= level.slots.wrapping_sub(1);
            match level.node {
                Some(Node::Leaf { values, .. }) if at < LEAF => {
                    if let Some(value) = &values[at] {
                        self.left = self.left.saturating_sub(1);
                        return Some(value);
                    }
                }
                Some(Node::Branch { children, .. }) if at < FAN => {
                    if let Some(child) = &children[at] {
                        self.enter(child);
                    }
                }
                _ => self.depth -= 1,
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        let path = self.path.each_ref().map(|level| Level { node: level.node, slots: level.slots });
        Self { path, depth: self.depth, marked_only: self.marked_only, left: self.left }
    }
}
