//! Traces of Arm CoreSight: their AUXTRACE_INFO record, and the sources in their buffers.
//!
//! Source: Linux, `tools/perf/util/cs-etm.h` and `include/linux/coresight-pmu.h`.

use std::collections::BTreeMap;

use hodo_bytes::{Cursor, Eof};
use hodo_etm::{Config, Registers, frames};

use super::records::Record;
use crate::{
    Unpacked,
    coresight::push_source,
    error::Error,
    recording::{Piece, Sideband, SidebandKind, Stream, StreamKind},
};

/// The kind of a trace unit, before its registers.
mod magic {
    pub(super) const ETM_V4: u64 = 0x4040_4040_4040_4040;
    pub(super) const ETE: u64 = 0x5050_5050_5050_5050;
}

/// Words of an ETMv4 in version 0, which does not count them.
const ETM_V4_WORDS: u64 = 7;

/// TS_SOURCE: the virtual counter, which TIME_CONV converts to the recording's clock.
const VIRTUAL_COUNTER: u32 = 1;

/// TRCCONFIGR: timestamps.
const TIMESTAMPS: u32 = 1 << 11;

/// A parsed AUXTRACE_INFO record of CoreSight.
#[derive(Clone, Debug)]
pub(super) struct CoreSight {
    is_snapshot: bool,
    units: Vec<Unit>,
    /// Whether buffers contain the bytes of one source, without frames.
    pub(super) is_raw: bool,
}

/// The trace unit of a CPU.
#[derive(Clone, Copy, Debug)]
struct Unit {
    cpu: u32,
    trace_id: u8,
    config: Config,
    /// Whether its timestamps are ticks that TIME_CONV converts.
    has_time: bool,
}

impl CoreSight {
    /// Reads the record, after u32 type and u32 reserved: u64 version, u64 with the PMU's type and the number of CPUs, u64
    /// snapshot; then for each CPU u64 magic, u64 CPU, in version 1 u64 number of words, and the words: TRCCONFIGR,
    /// TRCTRACEIDR, TRCIDR0, TRCIDR1, TRCIDR2, TRCIDR8, TRCAUTHSTATUS, of an ETE TRCDEVARCH, and TS_SOURCE since perf 6.4.
    ///
    /// # Errors
    /// The record ends before a unit's last word, or a unit is of an older kind.
    pub(super) fn read(record: &Record<'_>) -> Result<CoreSight, Error> {
        let mut cursor = Cursor::new(record.body, record.body_offset());
        let cut = |eof: Eof| Error::cut_short("AUXTRACE_INFO record", eof);
        let mut words =
            || -> Result<[u64; 4], Eof> { Ok([cursor.u64()?, cursor.u64()?, cursor.u64()?, cursor.u64()?]) };
        let [_kind, version, pmu_and_cpus, snapshot] = words().map_err(cut)?;
        let mut coresight = CoreSight { is_snapshot: snapshot != 0, units: Vec::new(), is_raw: false };
        for _ in 0..pmu_and_cpus as u32 {
            let at = cursor.offset();
            let unit = Unit::read(&mut cursor, version).map_err(cut)?;
            let older = || Error::invalid(at, "trace unit", 0, "an ETMv4 or ETE");
            coresight.units.push(unit.ok_or_else(older)?);
        }
        Ok(coresight)
    }

    /// Whether the recording consists of snapshots.
    pub(super) fn snapshots(&self) -> bool {
        self.is_snapshot
    }

    /// Whether the times of records and of all units are of one clock. Those of a unit are not where the hardware's generator of
    /// timestamps is another counter than the kernel's.
    pub(super) fn has_time(&self) -> bool {
        self.units.iter().all(|unit| unit.has_time)
    }

    /// Returns the streams of the sources. `sideband` may contain the trace IDs that the kernel gave to the CPUs.
    pub(super) fn separate<'a>(
        &self,
        streams: Vec<Stream<'a>>,
        sideband: &[Sideband<'a>],
        unpacked: &'a Unpacked,
    ) -> Vec<Stream<'a>> {
        let mut cpus: BTreeMap<u8, u32> = self.units.iter().map(|unit| (unit.trace_id, unit.cpu)).collect();
        for record in sideband {
            if let (SidebandKind::HardwareId { id, .. }, Some(cpu)) = (&record.kind, record.cpu) {
                cpus.insert((id & 0x7f) as u8, cpu);
            }
        }
        if self.is_raw {
            return streams.into_iter().map(|stream| self.of_cpu(stream.cpu, stream)).collect();
        }
        let mut separated: Vec<(u8, Stream<'a>)> = Vec::new();
        for stream in streams {
            for extent in extents(&stream.pieces) {
                for source in frames::sources(&extent.concat()) {
                    let owner = Stream { pieces: Vec::new(), ..stream.clone() };
                    let of_source =
                        |(id, known): &(u8, Stream<'a>)| *id == source.id && known.thread == owner.thread;
                    let index = separated.iter().position(of_source).unwrap_or_else(|| {
                        let cpu = cpus.get(&source.id).copied().or(owner.cpu);
                        let cpu = cpu.filter(|_| owner.thread.is_none());
                        let unit_cpu = cpus.get(&source.id).copied().or(owner.cpu);
                        let stream = self.of_cpu(unit_cpu, Stream { cpu, ..owner });
                        separated.push((source.id, stream));
                        separated.len() - 1
                    });
                    let pieces = &mut separated[index].1.pieces;
                    push_source(pieces, unpacked.keep(source.bytes), &source.losses, extent.file_offset);
                }
            }
        }
        separated.into_iter().map(|(_, stream)| stream).collect()
    }

    /// Makes a stream one of a CPU's trace unit.
    fn of_cpu<'a>(&self, cpu: Option<u32>, stream: Stream<'a>) -> Stream<'a> {
        let unit = self.units.iter().find(|unit| Some(unit.cpu) == cpu).or(self.units.first());
        let config = unit.map(|unit| unit.config).unwrap_or_default();
        Stream { kind: StreamKind::Etm(config), ..stream }
    }
}

/// Pieces without a gap between them.
struct FramedExtent<'p, 'a> {
    pieces: &'p [Piece<'a>],
    file_offset: u64,
}

impl FramedExtent<'_, '_> {
    fn concat(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|piece| piece.bytes).copied().collect()
    }
}

fn extents<'p, 'a>(pieces: &'p [Piece<'a>]) -> impl Iterator<Item = FramedExtent<'p, 'a>> {
    pieces.chunk_by(|_, next| !next.after_gap).map(|pieces| {
        let file_offset = pieces.first().map_or(0, |piece| piece.file_offset);
        FramedExtent { pieces, file_offset }
    })
}

impl Unit {
    /// Reads a unit; `None` if it is neither ETMv4 nor ETE.
    fn read(cursor: &mut Cursor<'_>, version: u64) -> Result<Option<Unit>, Eof> {
        let (kind, cpu) = (cursor.u64()?, cursor.u64()?);
        let count = if version == 0 { ETM_V4_WORDS } else { cursor.u64()? };
        let mut words = [0; 9];
        for index in 0..count {
            let word = cursor.u64()?;
            if let Some(kept) = words.get_mut(index as usize) {
                *kept = word as u32;
            }
        }
        let [config, trace_id, id0, id1, id2, id8, _status, ..] = words;
        let (device_architecture, time_source) = match kind {
            magic::ETE => (words[7], words[8]),
            _ => (0, words[7]),
        };
        let registers = Registers { config, trace_id, id0, id1, id2, id8, device_architecture };
        let unit = Unit {
            cpu: cpu as u32,
            trace_id: (trace_id & 0x7f) as u8,
            has_time: config & TIMESTAMPS != 0 && time_source == VIRTUAL_COUNTER,
            config: Config::new(&registers),
        };
        Ok(Some(unit).filter(|_| matches!(kind, magic::ETM_V4 | magic::ETE)))
    }
}
