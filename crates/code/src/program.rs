//! The code of one process, ready for a walk.

use hodo_isa::Isa;

use crate::{AddressSpace, Graph, Labels, native::WALKS_BEFORE_CODE};

/// The block graphs of one address space, one for each instruction set in use.
#[derive(Debug)]
pub struct Program<'a, L> {
    space: &'a AddressSpace<'a>,
    labels: &'a L,
    graphs: [Option<Graph<'a, L>>; Isa::COUNT],
    native_after: u32,
}

impl<'a, L: Labels> Program<'a, L> {
    /// Creates a program without blocks.
    pub fn new(space: &'a AddressSpace<'a>, labels: &'a L) -> Program<'a, L> {
        Program { space, labels, graphs: [const { None }; Isa::COUNT], native_after: WALKS_BEFORE_CODE }
    }

    /// Sets the number of walks over a graph after which native code is generated, instead of the default;
    /// [`u32::MAX`] disables it.
    #[must_use]
    pub fn native_after(self, walks: u32) -> Program<'a, L> {
        Program { native_after: walks, ..self }
    }

    /// Returns the blocks of one instruction set.
    #[inline]
    pub fn graph(&mut self, isa: Isa) -> &mut Graph<'a, L> {
        self.graphs[isa.index()]
            .get_or_insert_with(|| Graph::new(self.space, self.labels, isa).native_after(self.native_after))
    }
}
