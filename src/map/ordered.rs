//! A persistent ordered set in which the next larger item is found without allocating.
//!
//! A treap: a binary search tree by item, and a heap by a pseudo-random priority computed from the item. So
//! its shape depends only on the items, and its expected depth is logarithmic. A clone shares all nodes; a
//! write copies the path to the change, unless that path is not shared.

use std::cmp::Ordering;
use std::sync::Arc;

/// The set.
pub(crate) struct Ordered<T> {
    root: Tree<T>,
    len: usize,
}

type Tree<T> = Option<Arc<Node<T>>>;

#[derive(Clone)]
struct Node<T> {
    item: T,
    priority: u64,
    before: Tree<T>,
    behind: Tree<T>,
}

impl<T> Ordered<T> {
    pub(crate) const fn new() -> Self {
        Self { root: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The smallest item for which `is_before` returns false. It must return true for all smaller items and
    /// false for all larger ones.
    pub(crate) fn first_not(&self, is_before: impl Fn(&T) -> bool) -> Option<&T> {
        let (mut tree, mut best) = (&self.root, None);
        while let Some(node) = tree {
            tree = if is_before(&node.item) {
                &node.behind
            } else {
                best = Some(&node.item);
                &node.before
            };
        }
        best
    }
}

impl<T: Ord + Clone> Ordered<T> {
    /// Adds an item, unless it is present. The priority must always be the same hash of the item.
    pub(crate) fn insert(&mut self, item: T, priority: u64) {
        let mut tree = &mut self.root;
        // Equal items have equal priorities, so a present one cannot be below this point.
        while tree.as_ref().is_some_and(|node| node.priority >= priority) {
            let Some(node) = tree.as_mut().map(Arc::make_mut) else { return };
            tree = match item.cmp(&node.item) {
                Ordering::Less => &mut node.before,
                Ordering::Equal => return,
                Ordering::Greater => &mut node.behind,
            };
        }
        let (before, behind) = split(tree.take(), &item);
        *tree = Some(Arc::new(Node { item, priority, before, behind }));
        self.len += 1;
    }

    /// Removes an item. Returns whether it was present.
    pub(crate) fn remove(&mut self, item: &T) -> bool {
        // Search first: removing a missing item must not copy anything.
        if self.first_not(|other| other < item) != Some(item) {
            return false;
        }
        let mut tree = &mut self.root;
        while tree.as_ref().is_some_and(|node| node.item != *item) {
            let Some(node) = tree.as_mut().map(Arc::make_mut) else { return false };
            tree = if *item < node.item { &mut node.before } else { &mut node.behind };
        }
        if let Some(mut found) = tree.take() {
            let node = Arc::make_mut(&mut found);
            *tree = join(node.before.take(), node.behind.take());
            self.len -= 1;
        }
        true
    }
}

/// The items smaller and larger than `item`.
fn split<T: Ord + Clone>(tree: Tree<T>, item: &T) -> (Tree<T>, Tree<T>) {
    let Some(mut whole) = tree else { return (None, None) };
    let node = Arc::make_mut(&mut whole);
    if node.item < *item {
        let (before, behind) = split(node.behind.take(), item);
        node.behind = before;
        (Some(whole), behind)
    } else {
        let (before, behind) = split(node.before.take(), item);
        node.before = behind;
        (before, Some(whole))
    }
}

/// Joins two trees; all items of `one` are smaller.
fn join<T: Ord + Clone>(one: Tree<T>, other: Tree<T>) -> Tree<T> {
    let (mut one, mut other) = match (one, other) {
        (Some(one), Some(other)) => (one, other),
        (one, other) => return one.or(other),
    };
    if one.priority > other.priority {
        let node = Arc::make_mut(&mut one);
        node.behind = join(node.behind.take(), Some(other));
        Some(one)
    } else {
        let node = Arc::make_mut(&mut other);
        node.before = join(Some(one), node.before.take());
        Some(other)
    }
}

// Not derived: a derive would require `T: Clone`.
impl<T> Clone for Ordered<T> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::{Node, Ordered};

    fn priority(item: u32) -> u64 {
        u64::from(item).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
    }

    fn depth(tree: Option<&Arc<Node<u32>>>) -> usize {
        tree.map_or(0, |node| 1 + depth(node.before.as_ref()).max(depth(node.behind.as_ref())))
    }

    fn items(set: &Ordered<u32>) -> Vec<u32> {
        let next = |last: Option<u32>| set.first_not(|item| last.is_some_and(|last| *item <= last)).copied();
        std::iter::successors(next(None), |last| next(Some(*last))).collect()
    }

    #[test]
    fn every_version_equals_a_plain_set() {
        let (mut set, mut plain) = (Ordered::new(), BTreeSet::new());
        let mut kept = Vec::new();
        let mut chance = 7u32;
        for step in 0..4000 {
            chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let item = chance >> 16 & 255;
            if chance >> 28 < 9 {
                set.insert(item, priority(item));
                plain.insert(item);
            } else {
                assert_eq!(set.remove(&item), plain.remove(&item));
            }
            if step % 97 == 0 {
                kept.push((set.clone(), plain.clone()));
            }
        }
        kept.push((set, plain));
        for (set, plain) in kept {
            assert_eq!(set.len(), plain.len());
            assert_eq!(items(&set), plain.iter().copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn sorted_insertions_make_no_deep_tree() {
        let mut set = Ordered::new();
        for item in 0..10_000 {
            set.insert(item, priority(item));
        }
        assert!(depth(set.root.as_ref()) < 60, "{}", depth(set.root.as_ref()));
    }
}
