//! Writes sideband records, one per line.

use std::{fmt, io::Write};

use hodo_engine::{Reading, Trace};
use hodo_formats::recording::{Mapping, Sideband, SidebandKind, Thread};

use crate::{Outcome, lines::Lines};

/// Writes every sideband record to `out`, at most `limit` lines, in order of time: time, CPU, thread, and event. A `-`
/// stands for a missing value.
pub fn sideband(
    trace: &Trace<'_>,
    reading: Reading,
    limit: Option<u64>,
    out: &mut (dyn Write + Send),
) -> Outcome {
    let mut lines = Lines::new(out, limit);
    let clock = trace.recording.config.clock;
    let wanted = |sideband: &&Sideband<'_>| {
        let now = clock.zip(sideband.time).map(|(clock, time)| clock.ticks(time));
        now.map_or(reading.window.is_all(), |now| reading.window.contains(now))
    };
    for record in trace.recording.sideband.iter().filter(wanted) {
        lines.write(Line { trace, record }.to_string().as_bytes());
        if !lines.want_more() {
            break;
        }
    }
    lines.outcome(trace.recorded_losses())
}

/// One record as a line of text.
struct Line<'x, 'f> {
    trace: &'x Trace<'f>,
    record: &'x Sideband<'f>,
}

impl fmt::Display for Line<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sideband { time, cpu, thread, guest, .. } = self.record;
        match time {
            Some(time) => write!(f, "{time} ")?,
            None => write!(f, "- ")?,
        }
        match cpu {
            Some(cpu) => write!(f, "{cpu} ")?,
            None => write!(f, "- ")?,
        }
        if let Some(guest) = guest {
            write!(f, "guest {} ", guest.pid)?;
        }
        write!(f, "{} ", Id(*thread))?;
        self.what(f)?;
        writeln!(f)
    }
}

impl Line<'_, '_> {
    fn what(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match &self.record.kind {
            SidebandKind::Map(mapping) => map(mapping, f),
            SidebandKind::Comm { name, exec: true } => write!(f, "exec {}", text(name)),
            SidebandKind::Comm { name, exec: false } => write!(f, "name {}", text(name)),
            SidebandKind::Fork { parent } => write!(f, "fork of {}", Id(*parent)),
            SidebandKind::Exit => f.write_str("exit"),
            SidebandKind::SwitchIn => f.write_str("switch in"),
            SidebandKind::SwitchOut { preempted, next } => {
                f.write_str(if *preempted { "switch out, preempted" } else { "switch out" })?;
                next.map_or(Ok(()), |next| write!(f, ", next {}", Id(next)))
            }
            SidebandKind::TraceStart => f.write_str("trace start"),
            SidebandKind::Lost { records } => write!(f, "lost {records}"),
            SidebandKind::Throttle { on: true } => f.write_str("throttle"),
            SidebandKind::Throttle { on: false } => f.write_str("unthrottle"),
            SidebandKind::KernelSymbol(symbol) => {
                let what = if symbol.dropped { "symbol dropped" } else { "symbol" };
                write!(f, "{what} {:#x}+{:#x} {}", symbol.address, symbol.length, text(symbol.name))
            }
            SidebandKind::BpfProgram { id, loaded, .. } => {
                write!(f, "bpf program {id} {}", if *loaded { "loaded" } else { "unloaded" })
            }
            SidebandKind::TextPoke(poke) => {
                write!(f, "text poke {:#x}: {} bytes become {}", poke.address, poke.old.len(), poke.new.len())
            }
            SidebandKind::HardwareId { id, event } => {
                let name = self.trace.recording.events.get(*event).map_or("", |event| &event.name);
                write!(f, "hardware id {id} is event {event} {name}")
            }
        }
    }
}

fn map(mapping: &Mapping<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Mapping { address, length, file_offset, name, .. } = mapping;
    write!(f, "map {address:#x}+{length:#x} from {file_offset:#x} of {}", String::from_utf8_lossy(name))
}

/// Formats a process and thread like perf; the kernel is process -1.
struct Id(Thread);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.pid as i32, self.0.tid as i32)
    }
}
