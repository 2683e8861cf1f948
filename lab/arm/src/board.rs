//! The hardware trace of a board's Cortex-M: written as a snapshot, so that OpenCSD decodes it beside us.

use std::{fs, path::Path};

use hodo_etm::encoder::Settings;
use hodo_formats::{Input, Unpacked, recording::StreamKind};
use object::{Object, ObjectSegment, SegmentFlags, elf};

use crate::{
    Outcome,
    account::Code,
    configurations::{Configuration, PLAIN},
    foreign, snapshot,
};

/// Judges a recording of a processor with this program.
pub(crate) fn judge(recording: &Path, program: &Path, folder: &Path) -> Outcome {
    let (bytes, unpacked) = (fs::read(recording)?, Unpacked::default());
    let recording = hodo_formats::read(&Input::file(&bytes, &unpacked))?;
    let is_etm = |kind: &StreamKind| matches!(kind, StreamKind::Etm(config) if config.is_m_profile);
    let stream = recording.streams.iter().find(|stream| is_etm(&stream.kind));
    let stream = stream.ok_or("it has no trace of a Cortex-M")?;
    let trace: Vec<u8> = stream.pieces.iter().flat_map(|piece| piece.bytes).copied().collect();
    let settings = Settings { is_m_profile: true, ..PLAIN };
    let configuration =
        Configuration { name: "board", settings, timestamps: None, frames: false, perf_reads: false };
    let place = folder.join(configuration.name);
    snapshot::write(&place, &code(program)?, &trace, &configuration)?;
    foreign::judge(&[place.to_string_lossy().into_owned()], folder)
}

/// The executable segments of a program, by address.
fn code(program: &Path) -> Outcome<Code> {
    let bytes = fs::read(program)?;
    let mut code = Code::new();
    for segment in object::File::parse(&*bytes)?.segments() {
        let SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
        if p_flags & elf::PF_X != elf::ProgramFlags(0) {
            code.insert(segment.address(), segment.data()?.to_vec());
        }
    }
    Ok(code)
}
