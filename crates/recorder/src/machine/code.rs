//! Selects the pieces of a machine's executed code that a recording must keep.
//!
//! ```text
//! code of the kernel ──────────────────► its first state, as large pieces; then each change
//! code of user space ──which process?──► what differs from the files that the process maps
//! code of a guest ─────────────────────► as that of the kernel, by its VMCB
//! ```
//!
//! The plugin identifies address spaces by CR3 and reports new code in each.

use std::collections::BTreeMap;

use hodo_clock::{Nanos, PerfClock, Tsc};
use hodo_emulator::machine::spool::{CodeNote, GUEST, SpaceNote};
use hodo_formats::{
    perf::ring::RingRecord,
    recording::{KeptCode, Sideband},
};

use super::user_code::of_processes;

/// The first address of the kernel's half.
const KERNEL: u64 = 1 << 63;
/// The process of a guest's code.
const NO_PROCESS: u32 = 0;

/// A piece of code that the recording keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) pid: u32,
    /// The VMCB of the guest that it belongs to.
    pub(super) guest: Option<u64>,
    pub(super) time: Nanos,
    pub(super) address: u64,
    pub(super) bytes: Vec<u8>,
}

/// The pieces to keep, in order of time; those of the kernel exist from `begin`. `records` are in order of time;
/// `beginning` is what was mapped before them.
pub(super) fn pieces(
    notes: Vec<(CodeNote, Vec<u8>)>,
    spaces: &[SpaceNote],
    beginning: &[Sideband<'_>],
    records: &[RingRecord<'_>],
    clock: &PerfClock,
    begin: Nanos,
) -> Vec<Piece> {
    let (guests, notes): (Vec<_>, Vec<_>) = notes.into_iter().partition(|(note, _)| note.space & GUEST != 0);
    // A processor that starts has a CR3 of 0 too, and code at low addresses.
    let is_of_kernel = |note: &CodeNote| note.space == 0 && note.address & KERNEL != 0;
    let (kernel, user): (Vec<_>, Vec<_>) = notes.into_iter().partition(|(note, _)| is_of_kernel(note));
    let no_guest = None;
    let mut pieces = state_and_changes(kernel, KeptCode::KERNEL, no_guest, clock, begin);
    let mut by_guest: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for (note, bytes) in guests {
        by_guest.entry(note.space & !GUEST).or_default().push((note, bytes));
    }
    for (vmcb, notes) in by_guest {
        pieces.extend(state_and_changes(notes, NO_PROCESS, Some(vmcb), clock, begin));
    }
    pieces.extend(of_processes(user, spaces, beginning, records, clock));
    pieces.sort_by_key(|piece| piece.time);
    pieces
}

/// The code of the kernel or a guest: its first state, then its changes.
fn state_and_changes(
    notes: Vec<(CodeNote, Vec<u8>)>,
    pid: u32,
    guest: Option<u64>,
    clock: &PerfClock,
    begin: Nanos,
) -> Vec<Piece> {
    let mut first: BTreeMap<u64, u8> = BTreeMap::new();
    let mut changes = Vec::new();
    for (note, bytes) in notes {
        for (address, &byte) in (note.address..).zip(&bytes) {
            first.entry(address).or_insert(byte);
        }
        if note.changed {
            let time = clock.nanos(Tsc(note.time));
            changes.push(Piece { pid, guest, time, address: note.address, bytes });
        }
    }
    let mut pieces: Vec<Piece> = Vec::new();
    for (address, byte) in first {
        match pieces.last_mut() {
            Some(last) if last.address + last.bytes.len() as u64 == address => last.bytes.push(byte),
            _ => {
                pieces.push(Piece { pid, guest, time: begin, address, bytes: vec![byte] });
            }
        }
    }
    pieces.extend(changes);
    pieces
}
