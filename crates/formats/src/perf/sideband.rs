//! Converts kernel records to sideband.

use std::collections::HashMap;

use hodo_bytes::{Cursor, Eof};

use super::{
    events::{Events, SampleId},
    layout::{BPF_LOAD, ksymbol, misc, record},
    records::Record,
};
use crate::recording::{Guest, KernelSymbol, Mapping, Sideband, SidebandKind, TextPoke, Thread};

/// The context of records.
pub(super) struct Known<'r> {
    pub(super) events: &'r Events,
    /// Virtual machines by event id.
    pub(super) guests: &'r HashMap<u64, Guest>,
}

/// Converts a record to sideband. `body` and `sample` are its two parts. Returns `None` for data mappings and for
/// types that are no sideband.
///
/// # Errors
/// The record is shorter than its type requires.
pub(super) fn read<'a>(
    record: &Record<'a>,
    body: &mut Cursor<'a>,
    sample: SampleId,
    known: &Known<'_>,
) -> Result<Option<Sideband<'a>>, Eof> {
    let running = sample.thread.unwrap_or(UNKNOWN_THREAD);
    let content = match record.kind {
        record::MMAP | record::MMAP2 => map(record, body)?,
        record::COMM => Some(comm(record, body)?),
        record::FORK => Some(fork(body)?),
        record::EXIT => Some((task(body)?.thread, SidebandKind::Exit)),
        record::ITRACE_START => Some((thread(body)?, SidebandKind::TraceStart)),
        record::SWITCH | record::SWITCH_CPU_WIDE => {
            sample.thread.map(|thread| (thread, switch(record, body)))
        }
        record::LOST => Some((running, lost(body)?)),
        record::LOST_SAMPLES => Some((running, samples_lost(body)?)),
        record::THROTTLE => Some((running, SidebandKind::Throttle { on: true })),
        record::UNTHROTTLE => Some((running, SidebandKind::Throttle { on: false })),
        record::KSYMBOL => Some((running, kernel_symbol(body)?)),
        record::BPF_EVENT => Some((running, bpf_event(body)?)),
        record::TEXT_POKE => Some((running, text_poke(body)?)),
        record::AUX_OUTPUT_HW_ID => {
            let (id, event) = (body.u64()?, sample.id.and_then(|id| known.events.with_id(id)));
            event.map(|event| (running, SidebandKind::HardwareId { id, event }))
        }
        _ => None,
    };
    let guest =
        |thread: Thread| guest(record, thread, sample.id.and_then(|id| known.guests.get(&id).copied()));
    Ok(content.map(|(thread, kind)| Sideband {
        time: sample.time,
        cpu: sample.cpu,
        thread,
        guest: guest(thread),
        kind,
    }))
}

/// The virtual machine of a record. `of_event` is the one in the id index for the record's event; without it, the
/// process of a guest mapping is the host process that runs the guest.
fn guest(record: &Record<'_>, thread: Thread, of_event: Option<Guest>) -> Option<Guest> {
    let in_guest = matches!(record.misc & misc::CPUMODE, misc::GUEST_KERNEL | misc::GUEST_USER);
    of_event.or(in_guest.then_some(Guest { pid: thread.pid, vcpu: None }))
}

/// The thread of a record that contains none.
const UNKNOWN_THREAD: Thread = Thread { pid: u32::MAX, tid: u32::MAX };

/// A record's thread and content.
type Content<'a> = (Thread, SidebandKind<'a>);

/// u32 pid, u32 tid.
fn thread(body: &mut Cursor<'_>) -> Result<Thread, Eof> {
    Ok(Thread { pid: body.u32()?, tid: body.u32()? })
}

/// MMAP: thread, u64 addr, u64 len, u64 pgoff, path. MMAP2 also has inode or build id, u32 prot and u32 flags before
/// the path.
fn map<'a>(record: &Record<'a>, body: &mut Cursor<'a>) -> Result<Option<Content<'a>>, Eof> {
    let thread = thread(body)?;
    let (address, length, file_offset) = (body.u64()?, body.u64()?, body.u64()?);
    let mut build_id: &[u8] = &[];
    if record.kind == record::MMAP2 {
        let inode = body.take(24)?;
        let (_prot, _flags) = (body.u32()?, body.u32()?);
        if let (true, [size, _, _, _, id @ ..]) = (record.misc & misc::MMAP_BUILD_ID != 0, inode) {
            build_id = id.get(..usize::from(*size)).unwrap_or(id);
        }
    }
    let name = body.c_string();
    let kernel = match record.misc & misc::CPUMODE {
        misc::KERNEL | misc::GUEST_KERNEL => true,
        misc::USER | misc::GUEST_USER | 0 => false,
        _hypervisor => return Ok(None),
    };
    let mapping = Mapping { address, length, file_offset, name, build_id, kernel };
    let executable = record.misc & misc::MMAP_DATA == 0;
    Ok(executable.then_some((thread, SidebandKind::Map(mapping))))
}

/// Thread, name.
fn comm<'a>(record: &Record<'a>, body: &mut Cursor<'a>) -> Result<Content<'a>, Eof> {
    let thread = thread(body)?;
    let exec = record.misc & misc::COMM_EXEC != 0;
    Ok((thread, SidebandKind::Comm { name: body.c_string(), exec }))
}

/// The threads of FORK and EXIT.
struct Task {
    thread: Thread,
    parent: Thread,
}

/// FORK and EXIT: u32 pid, u32 ppid, u32 tid, u32 ptid, u64 time. Ignores the time in the body, which is not on the
/// recording's clock if `perf record -k` selected one.
fn task(body: &mut Cursor<'_>) -> Result<Task, Eof> {
    let (pid, parent_pid) = (body.u32()?, body.u32()?);
    let (tid, parent_tid) = (body.u32()?, body.u32()?);
    body.u64()?;
    Ok(Task { thread: Thread { pid, tid }, parent: Thread { pid: parent_pid, tid: parent_tid } })
}

fn fork<'a>(body: &mut Cursor<'_>) -> Result<Content<'a>, Eof> {
    let Task { thread: child, parent } = task(body)?;
    Ok((child, SidebandKind::Fork { parent }))
}

/// The trailer contains the thread. The body of SWITCH_CPU_WIDE contains the other thread: u32 pid, u32 tid.
fn switch<'a>(record: &Record<'_>, body: &mut Cursor<'_>) -> SidebandKind<'a> {
    if record.misc & misc::SWITCH_OUT == 0 {
        return SidebandKind::SwitchIn;
    }
    let next = if record.kind == record::SWITCH_CPU_WIDE { thread(body).ok() } else { None };
    SidebandKind::SwitchOut { preempted: record.misc & misc::SWITCH_OUT_PREEMPT != 0, next }
}

/// u64 id, u64 lost.
fn lost<'a>(body: &mut Cursor<'_>) -> Result<SidebandKind<'a>, Eof> {
    let _id = body.u64()?;
    samples_lost(body)
}

/// u64 lost.
fn samples_lost<'a>(body: &mut Cursor<'_>) -> Result<SidebandKind<'a>, Eof> {
    Ok(SidebandKind::Lost { records: body.u64()? })
}

/// u64 addr, u32 len, u16 ksym_type, u16 flags, name.
fn kernel_symbol<'a>(body: &mut Cursor<'a>) -> Result<SidebandKind<'a>, Eof> {
    let (address, length) = (body.u64()?, body.u32()?.into());
    let (kind, flags) = (body.u16()?, body.u16()?);
    let (bpf, dropped) = (kind == ksymbol::BPF, flags & ksymbol::UNREGISTER != 0);
    Ok(SidebandKind::KernelSymbol(KernelSymbol { address, length, name: body.c_string(), bpf, dropped }))
}

/// u16 type, u16 flags, u32 id, 8 bytes of tag.
fn bpf_event<'a>(body: &mut Cursor<'a>) -> Result<SidebandKind<'a>, Eof> {
    let (kind, _flags, id) = (body.u16()?, body.u16()?, body.u32()?);
    Ok(SidebandKind::BpfProgram { id, loaded: kind == BPF_LOAD, tag: body.take(8)? })
}

/// u64 addr, u16 old_len, u16 new_len, old bytes, new bytes.
fn text_poke<'a>(body: &mut Cursor<'a>) -> Result<SidebandKind<'a>, Eof> {
    let address = body.u64()?;
    let (old, new) = (body.u16()?, body.u16()?);
    let (old, new) = (body.take(old.into())?, body.take(new.into())?);
    Ok(SidebandKind::TextPoke(TextPoke { address, old, new }))
}
