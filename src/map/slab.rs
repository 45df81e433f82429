//! A persistent store of values by number: a radix tree whose leaves hold a few values each.
//!
//! The index maps lead to numbers, not to pods, so that an update of a known pod writes one path here and touches no
//! map. Pages are small because a page that is written is copied, and a copy counts every pointer it holds.

use std::sync::Arc;

/// Values in a leaf, children of a branch.
const WIDTH_BITS: u32 = 4;
const WIDTH: usize = 1 << WIDTH_BITS;
/// The most branches on the way to a value: numbers have 28 bits, of which the leaf takes the last.
const DEPTH: usize = (28 / WIDTH_BITS) as usize;
/// Every slot of a page taken.
const FULL: u16 = u16::MAX;

#[derive(Clone)]
pub(crate) struct Slab<T> {
    root: Option<Arc<Node<T>>>,
    /// How far a number is shifted to the right to index the root: 0 if the root is a leaf.
    shift: u32,
    len: usize,
}

#[derive(Clone)]
enum Node<T> {
    Leaf([Option<T>; WIDTH]),
    Branch {
        /// Bit i: no room is left below child i.
        full: u16,
        children: [Option<Arc<Node<T>>>; WIDTH],
    },
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { root: None, shift: 0, len: 0 }
    }
}

impl<T> Slab<T> {
    /// The most values that a slab numbers.
    pub(crate) const MAX_LEN: usize = 1 << 28;

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let mut shift = self.shift;
        if number >> shift >> WIDTH_BITS != 0 {
            return None;
        }
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Branch { children, .. } => {
                    node = children[slot(number, shift)].as_deref()?;
                    shift = shift.wrapping_sub(WIDTH_BITS);
                }
                Node::Leaf(values) => return values[slot(number, 0)].as_ref(),
            }
        }
    }

    /// All values, by ascending number.
    pub(crate) fn iter(&self) -> Iter<'_, T> {
        let mut iter = Iter { path: Default::default(), depth: 0, leaf: [].iter(), left: self.len };
        if let Some(root) = &self.root {
            iter.enter(root);
        }
        iter
    }
}

impl<T: Clone> Slab<T> {
    /// Stores `value` under the smallest free number. Nothing is stored if the slab is full.
    pub(crate) fn insert(&mut self, value: T) -> Option<u32> {
        if self.len == Self::MAX_LEN {
            return None;
        }
        match &self.root {
            None => self.root = Some(Arc::new(Node::leaf())),
            Some(root) if root.is_full() => {
                let root = Node::branch(self.root.take());
                self.root = Some(Arc::new(root));
                self.shift += WIDTH_BITS;
            }
            Some(_) => {}
        }
        let number = Arc::make_mut(self.root.as_mut()?).insert(self.shift, value);
        self.len += 1;
        Some(number)
    }

    /// The value under `number`, to change.
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        // A miss must not copy the path.
        self.get(number)?;
        let mut shift = self.shift;
        let mut node = Arc::make_mut(self.root.as_mut()?);
        loop {
            match node {
                Node::Branch { children, .. } => {
                    node = Arc::make_mut(children[slot(number, shift)].as_mut()?);
                    shift = shift.wrapping_sub(WIDTH_BITS);
                }
                Node::Leaf(values) => return values[slot(number, 0)].as_mut(),
            }
        }
    }

    /// Takes the value under `number` out; pages that are empty then go.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.get(number)?;
        let root = Arc::make_mut(self.root.as_mut()?);
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

/// Which slot of a page that is `shift` bits above the values `number` belongs to.
#[inline]
fn slot(number: u32, shift: u32) -> usize {
    (number >> shift) as usize % WIDTH
}

impl<T> Node<T> {
    fn leaf() -> Self {
        Self::Leaf([const { None }; WIDTH])
    }

    fn branch(first: Option<Arc<Self>>) -> Self {
        let full = u16::from(first.as_ref().is_some_and(|first| first.is_full()));
        let mut children = [const { None }; WIDTH];
        children[0] = first;
        Self::Branch { full, children }
    }

    fn is_full(&self) -> bool {
        match self {
            Self::Leaf(values) => values.iter().all(Option::is_some),
            Self::Branch { full, .. } => *full == FULL,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Leaf(values) => values.iter().all(Option::is_none),
            Self::Branch { children, .. } => children.iter().all(Option::is_none),
        }
    }
}

impl<T: Clone> Node<T> {
    /// Stores `value` in the first free slot below; there must be one.
    fn insert(&mut self, shift: u32, value: T) -> u32 {
        match self {
            Self::Leaf(values) => {
                let at = values.iter().position(Option::is_none).unwrap_or_default();
                values[at] = Some(value);
                u32::try_from(at).unwrap_or_default()
            }
            Self::Branch { full, children } => {
                let at = full.trailing_ones();
                let below = shift.wrapping_sub(WIDTH_BITS);
                let child = children[at as usize % WIDTH].get_or_insert_with(|| {
                    Arc::new(if below == 0 { Self::leaf() } else { Self::branch(None) })
                });
                let child = Arc::make_mut(child);
                let number = child.insert(below, value);
                if child.is_full() {
                    *full |= 1 << at;
                }
                at << shift | number
            }
        }
    }

    fn remove(&mut self, number: u32, shift: u32) -> Option<T> {
        let at = slot(number, shift);
        match self {
            Self::Leaf(values) => values[at].take(),
            Self::Branch { full, children } => {
                let child = Arc::make_mut(children[at].as_mut()?);
                let value = child.remove(number, shift.wrapping_sub(WIDTH_BITS));
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
    for at in 0..WIDTH {
        if shift == 0 {
            let (old, new) = (value_at(old.0, at), value_at(new.0, at));
            if old.is_some() || new.is_some() {
                differs(old, new);
            }
        } else {
            compare(child_at(old, at, shift), child_at(new, at, shift), differs);
        }
    }
}

fn value_at<T>(node: Option<&Arc<Node<T>>>, at: usize) -> Option<&T> {
    match node.map(|node| &**node) {
        Some(Node::Leaf(values)) => values[at].as_ref(),
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
    (child, shift - WIDTH_BITS)
}

/// All values of a slab, by ascending number.
pub(crate) struct Iter<'a, T> {
    /// The branches on the way down to `leaf`, of which the first `depth` count. An array, so that walking over a
    /// snapshot allocates nothing.
    path: [std::slice::Iter<'a, Option<Arc<Node<T>>>>; DEPTH],
    depth: usize,
    leaf: std::slice::Iter<'a, Option<T>>,
    left: usize,
}

impl<'a, T> Iter<'a, T> {
    fn enter(&mut self, node: &'a Node<T>) {
        match node {
            Node::Leaf(values) => self.leaf = values.iter(),
            Node::Branch { children, .. } => {
                if let Some(level) = self.path.get_mut(self.depth) {
                    *level = children.iter();
                    self.depth += 1;
                }
            }
        }
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(value) = self.leaf.find_map(Option::as_ref) {
                self.left = self.left.saturating_sub(1);
                return Some(value);
            }
            let level = self.depth.checked_sub(1)?;
            match self.path[level].next() {
                Some(Some(node)) => self.enter(node),
                Some(None) => {}
                None => self.depth = level,
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
        Self { path: self.path.clone(), depth: self.depth, leaf: self.leaf.clone(), left: self.left }
    }
}
