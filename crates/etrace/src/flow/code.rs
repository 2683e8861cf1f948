//! Questions to the code about single instructions.

use hodo_code::{Block, BlockId, Graph, Labels, Terminator};
use hodo_flow::Trouble;
use hodo_isa::riscv::{self, Kind, Set};

/// Whether a block consists of a branch only.
pub(crate) fn is_branch(block: &Block) -> bool {
    block.instructions == 1 && block.terminator == Terminator::Conditional
}

/// Address of the last instruction of a block.
#[inline]
pub(crate) fn last_address<L: Labels>(graph: &Graph<'_, L>, id: BlockId) -> u64 {
    let block = graph.block(id);
    block.end.wrapping_sub(graph.lengths(block).last().copied().unwrap_or(0).into())
}

/// The end of the instruction at an address in a block.
pub(crate) fn end_of<L: Labels>(graph: &Graph<'_, L>, id: BlockId, address: u64) -> Option<u64> {
    let block = graph.block(id);
    let mut at = block.start;
    for &length in graph.lengths(block) {
        let end = at.wrapping_add(length.into());
        if at == address {
            return Some(end);
        }
        at = end;
    }
    None
}

/// The number of outcomes that are pending once the walk is at an address: one if there is a branch.
pub(crate) fn branches_at<L: Labels>(graph: &mut Graph<'_, L>, address: u64, tick: u64) -> u64 {
    graph.at(address, tick).map_or(0, |id| u64::from(is_branch(graph.block(id))))
}

/// Whether an instruction is an indirect jump.
pub(crate) fn is_indirect<L: Labels>(graph: &mut Graph<'_, L>, address: u64, tick: u64) -> bool {
    let Ok(id) = graph.at(address, tick) else { return false };
    let block = graph.block(id);
    let is_direct = matches!(
        block.terminator,
        Terminator::None | Terminator::Conditional | Terminator::Jump | Terminator::Call | Terminator::Trap
    );
    block.instructions == 1 && !is_direct
}

/// Whether the instruction at `next` may run directly after the one at `address`. `taken` is the outcome if that one is a
/// branch, as far as it is known.
///
/// # Errors
/// The code of the first one is missing.
pub(crate) fn may_follow<L: Labels>(
    graph: &mut Graph<'_, L>,
    (address, taken): (u64, Option<bool>),
    next: u64,
    tick: u64,
) -> Result<bool, Trouble> {
    let id = graph.at(address, tick).map_err(Trouble::Code)?;
    let block = graph.block(id);
    if block.instructions > 1 {
        return Ok(end_of(graph, id, address) == Some(next));
    }
    Ok(match block.terminator {
        Terminator::None | Terminator::Barrier | Terminator::Wait | Terminator::Trap => next == block.end,
        Terminator::Conditional => match taken {
            Some(true) => next == block.target,
            Some(false) => next == block.end,
            None => next == block.end || next == block.target,
        },
        Terminator::Jump | Terminator::Call => next == block.target,
        Terminator::IndirectJump | Terminator::IndirectCall | Terminator::Return | Terminator::Far => true,
    })
}

/// Register and value that an instruction loads, if the code determines it.
fn upper(bytes: &[u8], address: u64, set: Set) -> Option<(u8, u64)> {
    match riscv::decode(bytes, address, set)?.kind {
        Kind::Upper { register, value } if register != 0 => Some((register, value)),
        _ => None,
    }
}

/// The target of the indirect jump at the end of a block, if the instruction before loads it. `before` is what the
/// instruction before the block loads.
pub(crate) fn sequential_target<L: Labels>(
    graph: &Graph<'_, L>,
    id: BlockId,
    before: Option<(u8, u64)>,
    set: Set,
) -> Option<u64> {
    let block = graph.block(id);
    let (lengths, bytes) = (graph.lengths(block), graph.bytes().of(id));
    let (&last, earlier) = lengths.split_last()?;
    let at = bytes.len() - usize::from(last);
    let Kind::Indirect { base, offset, .. } = riscv::decode(&bytes[at..], 0, set)?.kind else { return None };
    let (register, value) = match earlier.last() {
        Some(&length) => {
            let address = block.end.wrapping_sub(u64::from(last) + u64::from(length));
            upper(&bytes[at - usize::from(length)..], address, set)?
        }
        None => before?,
    };
    let target = set.address(value.wrapping_add_signed(offset.into())) & !1;
    (register == base).then_some(target)
}

/// What the last instruction of a block loads.
pub(crate) fn upper_at_end<L: Labels>(graph: &Graph<'_, L>, id: BlockId, set: Set) -> Option<(u8, u64)> {
    let length = *graph.lengths(graph.block(id)).last()?;
    let bytes = graph.bytes().of(id);
    upper(&bytes[bytes.len() - usize::from(length)..], last_address(graph, id), set)
}
