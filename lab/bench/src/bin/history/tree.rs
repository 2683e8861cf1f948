//! A state history tree as its papers describe it (A. Montplaisir-Gonçalves et al., *State History Tree: an
//! incremental disk-based data structure for very large interval data*, SocialCom 2013): nodes of 64 KiB with at most
//! 50 children, intervals that come in order of their end, each in the lowest node of the open branch that begins no
//! later. One thread writes it.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use crate::states::State;

const NODE_BYTES: usize = 64 << 10;
const CHILDREN: usize = 50;
/// Begin, end, number of children, number of intervals.
const HEAD_BYTES: usize = 32;
/// Begin and number of a child.
const CHILD_BYTES: usize = 16;
/// Begin, end, lane and value.
const INTERVAL_BYTES: usize = 24;
/// The most intervals of a node that has children, and of a leaf.
const CORE: usize = (NODE_BYTES - HEAD_BYTES - CHILDREN * CHILD_BYTES) / INTERVAL_BYTES;
const LEAF: usize = (NODE_BYTES - HEAD_BYTES) / INTERVAL_BYTES;
/// Number of levels of a new tree; leaves are on the lowest. A full root becomes the child of a new root.
const LEVELS: usize = 2;

/// An interval of a node.
pub(crate) struct Interval {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) lane: u32,
    value: u32,
}

/// A child of a node. It ends where the next one begins.
struct Child {
    begin: u64,
    /// The number of its node.
    number: u64,
}

#[derive(Default)]
struct Node {
    number: u64,
    begin: u64,
    children: Vec<Child>,
    intervals: Vec<Interval>,
}

/// A tree under construction.
pub(crate) struct Builder {
    out: BufWriter<File>,
    /// Position of each closed node in the file, by node number: nodes are not closed in the order in which they are
    /// opened.
    positions: Vec<u64>,
    closed: u64,
    /// The open nodes, from the root to the leaf.
    branch: Vec<Node>,
    end: u64,
}

impl Builder {
    pub(crate) fn new(path: &Path) -> io::Result<Builder> {
        let out = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let mut builder = Builder { out, positions: Vec::new(), closed: 0, branch: Vec::new(), end: 0 };
        (0..LEVELS).for_each(|_| builder.open(0));
        Ok(builder)
    }

    /// Opens a node at the end of the branch.
    fn open(&mut self, begin: u64) {
        let number = self.positions.len() as u64;
        self.positions.push(0);
        if let Some(parent) = self.branch.last_mut() {
            parent.children.push(Child { begin, number });
        }
        self.branch.push(Node { number, begin, ..Node::default() });
    }

    /// Adds a state that ends no earlier than those before.
    pub(crate) fn add(&mut self, state: State) -> io::Result<()> {
        let mut level = self.branch.len() - 1;
        loop {
            let most = if level + 1 == self.branch.len() { LEAF } else { CORE };
            if self.branch[level].intervals.len() == most {
                self.sibling(level)?;
                level = self.branch.len() - 1;
            } else if state.begin < self.branch[level].begin {
                level -= 1;
            } else {
                self.end = self.end.max(state.end);
                let State { begin, end, lane, value, .. } = state;
                let interval = Interval { begin, end, lane, value: value as u32 };
                self.branch[level].intervals.push(interval);
                return Ok(());
            }
        }
    }

    /// Closes the open nodes from a level on, and opens their next siblings.
    fn sibling(&mut self, level: usize) -> io::Result<()> {
        if level > 0 && self.branch[level - 1].children.len() == CHILDREN {
            return self.sibling(level - 1);
        }
        let depth = self.branch.len();
        let begin = self.end;
        if level == 0 {
            // The root is full: it becomes the first child of a new root.
            let (first, number) = (self.branch[0].begin, self.positions.len() as u64);
            let child = Child { begin: first, number: self.branch[0].number };
            self.close_from(0)?;
            self.positions.push(0);
            self.branch.push(Node { number, begin: first, children: vec![child], ..Node::default() });
            (0..depth).for_each(|_| self.open(begin));
        } else {
            self.close_from(level)?;
            (level..depth).for_each(|_| self.open(begin));
        }
        Ok(())
    }

    fn close_from(&mut self, level: usize) -> io::Result<()> {
        while self.branch.len() > level {
            let node = self.branch.pop().expect("it is longer");
            let mut bytes = Vec::with_capacity(NODE_BYTES);
            for word in [node.begin, self.end, node.children.len() as u64, node.intervals.len() as u64] {
                bytes.extend(word.to_le_bytes());
            }
            for child in &node.children {
                bytes.extend(child.begin.to_le_bytes());
                bytes.extend(child.number.to_le_bytes());
            }
            for interval in &node.intervals {
                bytes.extend(interval.begin.to_le_bytes());
                bytes.extend(interval.end.to_le_bytes());
                bytes.extend(interval.lane.to_le_bytes());
                bytes.extend(interval.value.to_le_bytes());
            }
            bytes.resize(NODE_BYTES, 0);
            self.positions[node.number as usize] = self.closed * NODE_BYTES as u64;
            self.closed += 1;
            self.out.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Completes the tree.
    pub(crate) fn finish(mut self, path: &Path) -> io::Result<Tree> {
        let root = self.branch[0].number;
        self.close_from(0)?;
        self.out.flush()?;
        Ok(Tree { file: File::open(path)?, positions: self.positions, root })
    }
}

/// A complete tree.
pub(crate) struct Tree {
    file: File,
    positions: Vec<u64>,
    root: u64,
}

impl Tree {
    /// Returns its size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.positions.len() as u64 * NODE_BYTES as u64
    }

    /// Passes the intervals of all nodes that contain one of `times` to `to`; `times` are sorted.
    pub(crate) fn at(&self, times: &[u64], to: &mut impl FnMut(Interval)) -> io::Result<()> {
        let mut next = vec![self.root];
        let mut bytes = vec![0; NODE_BYTES];
        while let Some(number) = next.pop() {
            self.file.read_exact_at(&mut bytes, self.positions[number as usize])?;
            let word = |offset: usize| {
                u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
            };
            let half =
                |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"));
            let (end, children, intervals) = (word(8), word(16) as usize, word(24) as usize);
            let child = |index: usize| {
                let offset = HEAD_BYTES + index * CHILD_BYTES;
                Child { begin: word(offset), number: word(offset + 8) }
            };
            for index in 0..children {
                let Child { begin, number } = child(index);
                let end = if index + 1 < children { child(index + 1).begin } else { end };
                let first = times.partition_point(|&time| time < begin);
                if times.get(first).is_some_and(|&time| time <= end) {
                    next.push(number);
                }
            }
            let first = HEAD_BYTES + children * CHILD_BYTES;
            for offset in (0..intervals).map(|index| first + index * INTERVAL_BYTES) {
                let (begin, end) = (word(offset), word(offset + 8));
                to(Interval { begin, end, lane: half(offset + 16), value: half(offset + 20) });
            }
        }
        Ok(())
    }
}
