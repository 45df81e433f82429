//! Freed nodes, kept for reuse.
//!
//! A write takes a handful of nodes and frees as many of the same sizes a publication or two later, unless a reader holds the version
//! that has them. A general
//! allocator needs more time for such large and aligned memory than the rest of the write: an update without the pool takes
//! twice the instructions. So the writer of
//! an index keeps freed nodes here, by size, until it is dropped.
//!
//! The pool does not depend on contents. With `--cfg pod_index_no_pool`, for sanitizers and fuzzers, it keeps
//! nothing, so that they detect uses of freed memory.

use std::mem::MaybeUninit;

/// A cache line. Nodes are aligned to it, and their sizes are multiples of it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line([u8; 64]);

/// The memory of a node, without its content.
pub(super) type NodeMemory = Box<[MaybeUninit<Line>]>;

/// Nodes of up to this many lines are kept: the largest array of a table with some million entries.
const SIZE_CLASSES: usize = 136;
/// Maximum total size. A batch of a thousand updates replaces about as much.
const MAX_CACHED_BYTES: usize = 2 << 20;

#[cfg(test)]
pub(super) use audit::in_use;

/// Freed nodes by their number of lines.
#[derive(Default)]
pub(super) struct NodePool {
    classes: Vec<Vec<NodeMemory>>,
    bytes: usize,
}

impl Line {
    pub(super) const ZERO: Self = Self([0; 64]);
    /// The value that overwrites a freed node under the models.
    #[cfg(any(pod_index_loom, pod_index_shuttle))]
    pub(super) const POISON: Self = Self([0xff; 64]);
}

impl NodePool {
    /// Memory of `lines` lines.
    pub(super) fn take(&mut self, lines: usize) -> NodeMemory {
        let memory = match self.classes.get_mut(lines).and_then(Vec::pop) {
            Some(memory) => {
                self.bytes -= size_of_val(&*memory);
                memory
            }
            None => Box::new_uninit_slice(lines),
        };
        #[cfg(test)]
        audit::taken(&memory);
        memory
    }

    /// Keeps the memory, or frees it if the pool is full.
    pub(super) fn put(&mut self, memory: NodeMemory) {
        #[cfg(test)]
        audit::returned(&memory);
        let lines = memory.len();
        let bytes = self.bytes + size_of_val(&*memory);
        if lines >= SIZE_CLASSES || bytes > MAX_CACHED_BYTES || cfg!(any(pod_index_no_pool, fuzzing)) {
            return;
        }
        if self.classes.len() <= lines {
            self.classes.resize_with(lines + 1, Vec::new);
        }
        self.classes[lines].push(memory);
        self.bytes = bytes;
    }
}

/// The nodes in use among those that this thread took.
#[cfg(test)]
mod audit {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::NodeMemory;

    thread_local! {
        static IN_USE: RefCell<BTreeSet<usize>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(super) fn taken(memory: &NodeMemory) {
        let new = IN_USE.with_borrow_mut(|nodes| nodes.insert(memory.as_ptr().addr()));
        assert!(new, "a node was handed out twice");
    }

    pub(super) fn returned(memory: &NodeMemory) {
        let known = IN_USE.with_borrow_mut(|nodes| nodes.remove(&memory.as_ptr().addr()));
        assert!(known, "a node was given back twice");
    }

    /// The addresses of the nodes in use.
    pub(crate) fn in_use() -> BTreeSet<usize> {
        IN_USE.with_borrow(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, MAX_CACHED_BYTES, NodePool, SIZE_CLASSES};

    const IS_USED: bool = !cfg!(any(pod_index_no_pool, fuzzing));

    fn bytes_of(pool: &NodePool) -> usize {
        pool.classes.iter().flatten().map(|memory| size_of_val(&**memory)).sum()
    }

    #[test]
    fn a_node_is_reused_only_for_its_own_size() {
        let mut pool = NodePool::default();
        let node = pool.take(3);
        let address = node.as_ptr();
        pool.put(node);
        let other = pool.take(4);
        assert_eq!(other.len(), 4);
        assert_eq!(bytes_of(&pool), if IS_USED { 3 * size_of::<Line>() } else { 0 });
        let again = pool.take(3);
        assert_eq!((again.as_ptr() == address, again.len()), (IS_USED || again.as_ptr() == address, 3));
        assert_eq!(bytes_of(&pool), 0);
        pool.put(again);
        pool.put(other);
    }

    #[test]
    fn the_pool_is_bounded_in_bytes() {
        let mut pool = NodePool::default();
        for lines in [1, 7, 32, SIZE_CLASSES - 1] {
            let count = MAX_CACHED_BYTES / (lines * size_of::<Line>()) + 10;
            let nodes: Vec<_> = (0..count).map(|_| pool.take(lines)).collect();
            for node in nodes {
                pool.put(node);
            }
            let bytes = bytes_of(&pool);
            assert_eq!(bytes, pool.bytes);
            assert!(bytes <= MAX_CACHED_BYTES);
            assert_eq!(bytes > MAX_CACHED_BYTES - SIZE_CLASSES * size_of::<Line>(), IS_USED, "{lines} lines");
        }
    }

    #[test]
    fn a_node_larger_than_any_class_is_not_kept() {
        let mut pool = NodePool::default();
        let node = pool.take(SIZE_CLASSES);
        pool.put(node);
        assert_eq!(bytes_of(&pool), 0);
    }
}
