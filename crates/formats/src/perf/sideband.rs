//! Records of the kernel to sideband.

use hodo_bytes::{Cursor, Eof};

use super::{
    events::SampleId,
    features::BuildIds,
    layout::{misc, record},
    records::Record,
};
use crate::recording::{Mapping, Sideband, SidebandKind, Thread};

/// What a record says for the sideband; `None` where it says nothing: data mappings, records about
/// guests of a virtual machine, and types that are none of the sideband's.
///
/// `body` and `sample` are the two parts of the record, `build_ids` the recording's table.
///
/// # Errors
/// A record that is shorter than its type demands.
pub(super) fn read<'a>(
    record: &Record<'a>,
    body: &mut Cursor<'a>,
    sample: SampleId,
    build_ids: &BuildIds<'a>,
) -> Result<Option<Sideband<'a>>, Eof> {
    let said = match record.kind {
        record::MMAP | record::MMAP2 => map(record, body, build_ids)?,
        record::COMM => Some(comm(record, body)?),
        record::FORK => Some(fork(body)?),
        record::EXIT => Some((task(body)?.0, SidebandKind::Exit)),
        record::ITRACE_START => Some((thread(body)?, SidebandKind::TraceStart)),
        record::SWITCH | record::SWITCH_CPU_WIDE => sample.thread.map(|thread| (thread, switch(record))),
        record::LOST => Some((sample.thread.unwrap_or(NOBODY), lost(body)?)),
        record::LOST_SAMPLES => Some((sample.thread.unwrap_or(NOBODY), samples_lost(body)?)),
        _ => None,
    };
    Ok(said.map(|(thread, kind)| Sideband { time: sample.time, cpu: sample.cpu, thread, kind }))
}

/// Thread of a record that names none.
const NOBODY: Thread = Thread { pid: u32::MAX, tid: u32::MAX };

/// A record's thread and what it says.
type Said<'a> = (Thread, SidebandKind<'a>);

/// u32 pid, u32 tid.
fn thread(body: &mut Cursor<'_>) -> Result<Thread, Eof> {
    Ok(Thread { pid: body.u32()?, tid: body.u32()? })
}

/// MMAP: thread, u64 addr, u64 len, u64 pgoff, path. MMAP2 has inode or build id, u32 prot and u32
/// flags before the path.
fn map<'a>(
    record: &Record<'a>,
    body: &mut Cursor<'a>,
    build_ids: &BuildIds<'a>,
) -> Result<Option<Said<'a>>, Eof> {
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
    if build_id.is_empty() {
        build_id = build_ids.get(name).copied().unwrap_or_default();
    }
    let kernel = match record.misc & misc::CPUMODE {
        misc::KERNEL => true,
        misc::USER | 0 => false,
        _guest_or_hypervisor => return Ok(None),
    };
    let mapping = Mapping { address, length, file_offset, name, build_id, kernel };
    let executable = record.misc & misc::MMAP_DATA == 0;
    Ok(executable.then_some((thread, SidebandKind::Map(mapping))))
}

/// Thread, name.
fn comm<'a>(record: &Record<'a>, body: &mut Cursor<'a>) -> Result<Said<'a>, Eof> {
    let thread = thread(body)?;
    let exec = record.misc & misc::COMM_EXEC != 0;
    Ok((thread, SidebandKind::Comm { name: body.c_string(), exec }))
}

/// FORK and EXIT: u32 pid, u32 ppid, u32 tid, u32 ptid, u64 time. Gives the thread and its parent. Their
/// own time is left alone: it is not on the recording's clock where one was chosen (`perf record -k`).
fn task(body: &mut Cursor<'_>) -> Result<(Thread, Thread), Eof> {
    let (pid, parent_pid) = (body.u32()?, body.u32()?);
    let (tid, parent_tid) = (body.u32()?, body.u32()?);
    body.u64()?;
    Ok((Thread { pid, tid }, Thread { pid: parent_pid, tid: parent_tid }))
}

fn fork<'a>(body: &mut Cursor<'_>) -> Result<Said<'a>, Eof> {
    let (child, parent) = task(body)?;
    Ok((child, SidebandKind::Fork { parent }))
}

/// The trailer says whom it is about; SWITCH_CPU_WIDE's own part names the other thread.
fn switch<'a>(record: &Record<'_>) -> SidebandKind<'a> {
    if record.misc & misc::SWITCH_OUT != 0 {
        SidebandKind::SwitchOut { preempted: record.misc & misc::SWITCH_OUT_PREEMPT != 0 }
    } else {
        SidebandKind::SwitchIn
    }
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
