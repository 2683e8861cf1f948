//! The code of one process, ready to be walked over.

use crate::{AddressSpace, Bits, Graph, Labels, native::MUCH};

/// The block graphs of one address space, one for each execution mode that was met.
#[derive(Debug)]
pub struct Program<'a, L> {
    space: &'a AddressSpace<'a>,
    labels: &'a L,
    graphs: [Option<Graph<'a, L>>; 3],
    native_after: u32,
}

impl<'a, L: Labels> Program<'a, L> {
    /// A program of which nothing was met yet.
    pub fn new(space: &'a AddressSpace<'a>, labels: &'a L) -> Program<'a, L> {
        Program { space, labels, graphs: [None, None, None], native_after: MUCH }
    }

    /// Makes machine code of graphs that were walked over so often, in place of what is usual; never after
    /// [`u32::MAX`].
    #[must_use]
    pub fn native_after(self, walks: u32) -> Program<'a, L> {
        Program { native_after: walks, ..self }
    }

    /// The blocks in one execution mode.
    #[inline]
    pub fn graph(&mut self, bits: Bits) -> &mut Graph<'a, L> {
        let index = match bits {
            Bits::B16 => 0,
            Bits::B32 => 1,
            Bits::B64 => 2,
        };
        self.graphs[index]
            .get_or_insert_with(|| Graph::new(self.space, self.labels, bits).native_after(self.native_after))
    }
}
