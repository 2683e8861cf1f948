//! Bodies of sideband records, without their trailers.

use super::{FIRST_ID, PROTECTION};
use crate::{
    perf::layout::{BPF_LOAD, BPF_UNLOAD, ksymbol, misc, record},
    recording::{KernelSymbol, Mapping, Sideband, SidebandKind, TextPoke, Thread},
};

/// A sideband record without its trailer.
pub(super) struct RecordBody {
    pub(super) kind: u32,
    pub(super) misc: u16,
    pub(super) bytes: Vec<u8>,
}

pub(super) fn sideband_body(event: &Sideband<'_>) -> RecordBody {
    let ids = |Thread { pid, tid }: Thread| [pid, tid].map(u32::to_le_bytes).concat();
    let thread_ids = || ids(event.thread);
    let (kind, misc, bytes) = match &event.kind {
        SidebandKind::Map(mapping) => {
            let mode = if mapping.kernel { misc::KERNEL } else { misc::USER };
            let with_id = if mapping.build_id.is_empty() { 0 } else { misc::MMAP_BUILD_ID };
            (record::MMAP2, mode | with_id, map_body(thread_ids(), mapping))
        }
        SidebandKind::Comm { name, exec } => {
            let mut body = thread_ids();
            body.extend_from_slice(name);
            body.push(0);
            (record::COMM, if *exec { misc::COMM_EXEC } else { 0 }, body)
        }
        SidebandKind::Fork { parent } => (record::FORK, 0, task(event, *parent)),
        SidebandKind::Exit => (record::EXIT, 0, task(event, event.thread)),
        SidebandKind::SwitchIn => (record::SWITCH, 0, Vec::new()),
        SidebandKind::SwitchOut { preempted, next } => {
            let flags = misc::SWITCH_OUT | if *preempted { misc::SWITCH_OUT_PREEMPT } else { 0 };
            let kind = if next.is_some() { record::SWITCH_CPU_WIDE } else { record::SWITCH };
            (kind, flags, next.map_or_else(Vec::new, ids))
        }
        SidebandKind::TraceStart => (record::ITRACE_START, 0, thread_ids()),
        SidebandKind::Lost { records } => (record::LOST, 0, words(&[FIRST_ID, *records])),
        SidebandKind::Throttle { on } => {
            let time = event.time.unwrap_or_default().0;
            (if *on { record::THROTTLE } else { record::UNTHROTTLE }, 0, words(&[time, FIRST_ID, FIRST_ID]))
        }
        SidebandKind::KernelSymbol(symbol) => (record::KSYMBOL, misc::KERNEL, kernel_symbol(symbol)),
        SidebandKind::BpfProgram { id, loaded, tag } => {
            (record::BPF_EVENT, misc::KERNEL, bpf_event(*id, *loaded, tag))
        }
        SidebandKind::TextPoke(poke) => (record::TEXT_POKE, misc::KERNEL, text_poke(poke)),
        SidebandKind::HardwareId { id, .. } => (record::AUX_OUTPUT_HW_ID, 0, words(&[*id])),
    };
    RecordBody { kind, misc, bytes }
}

/// u64 addr, u32 len, u16 ksym_type, u16 flags, name.
fn kernel_symbol(symbol: &KernelSymbol<'_>) -> Vec<u8> {
    let mut body = words(&[symbol.address]);
    body.extend((symbol.length as u32).to_le_bytes());
    body.extend(if symbol.bpf { ksymbol::BPF } else { ksymbol::OUT_OF_LINE }.to_le_bytes());
    body.extend(if symbol.dropped { ksymbol::UNREGISTER } else { 0 }.to_le_bytes());
    body.extend_from_slice(symbol.name);
    body.push(0);
    body
}

/// u16 type, u16 flags, u32 id, 8 bytes of tag.
fn bpf_event(id: u32, loaded: bool, tag: &[u8]) -> Vec<u8> {
    let mut body = [if loaded { BPF_LOAD } else { BPF_UNLOAD }, 0].map(u16::to_le_bytes).concat();
    body.extend(id.to_le_bytes());
    body.extend_from_slice(tag);
    body.resize(16, 0);
    body
}

/// u64 addr, u16 old_len, u16 new_len, old bytes, new bytes.
fn text_poke(poke: &TextPoke<'_>) -> Vec<u8> {
    let mut body = words(&[poke.address]);
    body.extend([poke.old.len() as u16, poke.new.len() as u16].map(u16::to_le_bytes).concat());
    body.extend_from_slice(poke.old);
    body.extend_from_slice(poke.new);
    body
}

/// u32 pid, ppid, tid, ptid, u64 time.
fn task(event: &Sideband<'_>, parent: Thread) -> Vec<u8> {
    let mut body =
        [event.thread.pid, parent.pid, event.thread.tid, parent.tid].map(u32::to_le_bytes).concat();
    body.extend(words(&[event.time.unwrap_or_default().0]));
    body
}

fn map_body(mut body: Vec<u8>, mapping: &Mapping<'_>) -> Vec<u8> {
    body.extend(words(&[mapping.address, mapping.length, mapping.file_offset]));
    let length = mapping.build_id.len().min(20);
    let mut identity = [0; 24];
    identity[0] = length as u8;
    identity[4..4 + length].copy_from_slice(&mapping.build_id[..length]);
    body.extend_from_slice(&identity);
    body.extend(PROTECTION.map(u32::to_le_bytes).concat());
    body.extend_from_slice(mapping.name);
    body.push(0);
    body
}

/// Converts words to little-endian bytes.
pub(super) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
