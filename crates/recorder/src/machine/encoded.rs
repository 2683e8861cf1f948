//! The traces of Arm and RISC-V machines: ETM or E-Trace, made of the plugin's packets.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Write},
    path::PathBuf,
};

use hodo_clock::{PerfClock, Tsc};
use hodo_emulator::{
    Target,
    machine::spool::{self, Cpu},
};

use super::{collect::Spool, disk, switches::ThreadSwitch};
use crate::units::{self, Clock, Code, Ran};

/// The trace of a processor.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) path: PathBuf,
    /// In bytes.
    pub(super) length: u64,
    /// Instructions that ran, but that the trace does not show.
    pub(super) hidden: u64,
    /// What is missing, for people.
    pub(super) missing: Option<String>,
}

/// Makes the traces of the processors of a spool, in files of the spool.
///
/// # Errors
/// The system's error.
pub(super) fn encode(
    spool: Spool<'_>,
    target: Target,
    cpus: &[Cpu],
    clock: &PerfClock,
    switches: &[ThreadSwitch],
) -> io::Result<Vec<Encoded>> {
    let (folder, is_full) = (spool.folder, spool.is_full());
    let nanos = |ticks| clock.nanos(Tsc(ticks)).0;
    let notes = spool::read_code(folder)?;
    let mut code = Code::of_machine(target.isa(), &notes, nanos);
    let mut encode = |cpu: &Cpu| {
        let length = cpu.pieces.iter().map(|piece| piece.length).sum();
        let file = disk::open(&spool::trace_path(folder, cpu.cpu), is_full)?;
        let packets = file.take(length).chain(&cpu.closing[..]);
        let threads = threads(switches, cpu.cpu);
        let ran = Ran { number: cpu.cpu, threads: &threads };
        let path = folder.join(format!("cpu-{}.unit", cpu.cpu));
        let mut out = BufWriter::new(File::create(&path)?);
        let last =
            units::encode_processor(target, ran, packets, &mut code, Clock::Counter(&nanos), &mut out)?;
        out.write_all(&last.bytes)?;
        let file = out.into_inner()?;
        let length = file.metadata()?.len();
        Ok(Encoded { path, length, hidden: last.hidden, missing: last.missing })
    };
    cpus.iter().map(&mut encode).collect()
}

/// The threads that a processor ran: since when, and their IDs. Its first switch leaves the first one.
fn threads(switches: &[ThreadSwitch], cpu: u32) -> Vec<(u64, u32)> {
    let of_cpu: Vec<_> = switches.iter().filter(|switch| switch.cpu == cpu).collect();
    let first = of_cpu.first().map(|switch| (0, switch.from.tid));
    first.into_iter().chain(of_cpu.iter().map(|switch| (switch.time.0, switch.to.tid))).collect()
}
