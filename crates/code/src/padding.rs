//! Padding that a call skips, and that never returns.
//!
//! Such a call only pushes an address: code that fills the processor's stack of return addresses discards it, and a
//! retpoline replaces it by the address of the function to enter. The padding stops speculation at the pushed address.
//! Sources: Linux, `arch/x86/include/asm/nospec-branch.h` (`__FILL_RETURN_SLOT`, `RETPOLINE`); LLVM,
//! "X86IndirectThunks".

use std::ops::Range;

use hodo_isa::{Instruction, Role, Terminator};

use crate::{ReadInstruction, Snapshot, Unreadable};

/// Upper limit of padding in bytes: a speculation trap of 7 bytes, aligned to 16 or 32.
const LONGEST: u64 = 32;

/// Returns whether code at `padding` is a speculation trap, from its first to its last byte: execution that gets into
/// it never leaves it. Reduces `valid` to the ticks during which the answer holds.
///
/// Recordings of an emulated machine contain the code that ran and no other, so what a call returned to is known. If it is
/// not, the call never returned.
pub(crate) fn never_returns(code: Snapshot<'_>, padding: Range<u64>, valid: &mut Range<u64>) -> bool {
    if padding.is_empty() || padding.end - padding.start > LONGEST {
        return false;
    }
    let (mut address, mut stops) = (padding.start, false);
    while address < padding.end {
        let ReadInstruction { instruction, valid: unchanged, .. } = match code.instruction(address) {
            Ok(read) => read,
            Err(Unreadable::Unmapped(_) | Unreadable::MissingBytes(..)) => return address == padding.start,
            Err(Unreadable::Invalid(_)) => return false,
        };
        *valid = valid.start.max(unchanged.start)..valid.end.min(unchanged.end);
        match instruction.role() {
            Role::Filler => {}
            Role::Breakpoint => stops = true,
            _ if is_within(&instruction, &padding) => stops = true,
            _ => return false,
        }
        address = instruction.end();
    }
    stops && address == padding.end
}

/// Returns whether a jump goes back, to an instruction of the padding before it or to itself.
fn is_within(jump: &Instruction, padding: &Range<u64>) -> bool {
    let step = jump.step();
    step.terminator == Terminator::Jump && (padding.start..=jump.address()).contains(&step.target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressSpace, Content, EdgeKind, Graph, Isa, Label, Labels, Origin, Place, Transfer};

    /// Returns whether the padding of these bytes, before a `ret`, never returns.
    fn traps(padding: &[u8]) -> bool {
        let bytes = [padding, &[0xc3]].concat();
        let mut space = AddressSpace::new();
        let content = Content { bytes: &bytes, origin: Origin { module: 0, offset: 0 } };
        space.map(0x1000..0x1000 + bytes.len() as u64, content, 0);
        let code = Snapshot { space: &space, isa: Isa::X86_64, tick: 0 };
        never_returns(code, 0x1000..0x1000 + padding.len() as u64, &mut (0..u64::MAX))
    }

    #[test]
    fn speculation_traps_never_return() {
        assert!(traps(&[0xcc]));
        // pause; lfence; jmp to the pause
        let trap = [0xf3, 0x90, 0x0f, 0xae, 0xe8, 0xeb, 0xf9];
        assert!(traps(&trap));
        // As LLVM aligns what follows.
        assert!(traps(&[&trap[..], &[0x66, 0x0f, 0x1f, 0x44, 0, 0], &[0x90]].concat()));
        assert!(traps(&[0xeb, 0xfe]), "a jump to itself");
    }

    /// Functions of 8 bytes each.
    struct Functions;

    impl Labels for Functions {
        fn label(&self, origin: Origin) -> (Label, u64) {
            let place = if origin.offset.is_multiple_of(8) { Place::Entry } else { Place::Middle };
            let function = (origin.offset / 8) as u32;
            (Label { module: 0, function, place }, 8 - origin.offset % 8)
        }
    }

    /// Returns how the call at the start of this code changes the call stack, and the kind of its edge. The byte after the
    /// call is unknown if it is 0.
    fn call(code: &[u8]) -> (Transfer, EdgeKind) {
        let mut space = AddressSpace::new();
        let unknown = usize::from(code[5] == 0);
        for part in [0..5, 5 + unknown..32] {
            let (begin, end) = (0x1000 + part.start as u64, 0x1000 + part.end as u64);
            let origin = Origin { module: 0, offset: part.start as u64 };
            space.map(begin..end, Content { bytes: &code[part], origin }, 0);
        }
        let mut graph = Graph::new(&space, &Functions, Isa::X86_64);
        let id = graph.at(0x1000, 0).unwrap();
        let is_remembered = graph.compact(id).edge != EdgeKind::Free;
        assert_eq!(graph.block(id).pushes_return(), is_remembered);
        (graph.block(id).transfer(), graph.compact(id).edge)
    }

    #[test]
    fn a_call_over_padding_is_remembered_by_the_processor_only() {
        let code = |distance: u8, behind: &[u8]| {
            let mut code = [&[0xe8, distance, 0, 0, 0], behind].concat();
            code.resize(32, 0xc3);
            code
        };
        assert_eq!(call(&code(0, &[])), (Transfer::None, EdgeKind::Free));
        assert_eq!(call(&code(1, &[0xcc])), (Transfer::PushOnly, EdgeKind::PushOnly));
        assert_eq!(call(&code(1, &[0])), (Transfer::PushOnly, EdgeKind::PushOnly), "it never ran");
        assert_eq!(call(&code(1, &[0x90])), (Transfer::Call, EdgeKind::Call));
        // The next function begins behind padding: the call at the end of a function that does not return.
        assert_eq!(call(&code(3, &[0xcc; 3])), (Transfer::Call, EdgeKind::Call));
    }

    #[test]
    fn other_code_may_return() {
        assert!(!traps(&[]), "a call to the next instruction");
        assert!(!traps(&[0x90, 0x90]), "it runs on");
        assert!(!traps(&[0x58]), "pop");
        assert!(!traps(&[0xeb, 0x00]), "a jump out of it");
        assert!(!traps(&[0xcc; 33]), "too much for padding");
        assert!(!traps(&[0xcc, 0xe8]), "the last instruction ends behind it");
    }
}
