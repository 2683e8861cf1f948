//! Snapshot folders that others wrote: our decoding beside OpenCSD's, instruction by instruction, of all units in all
//! buffers.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, Isa, NoLabels, Origin, Program};
use hodo_etm::{
    Config,
    flow::Decoder,
    packet::{A_SYNC, find_sync},
};
use hodo_flow::{Event, Executed, Sink, Switch};
use hodo_formats::{
    Input, OtherFile, Unpacked, coresight,
    recording::{Piece, Recording, SidebandKind, StreamKind},
};

use crate::Outcome;

/// The addresses that were decoded, and the number of gaps.
#[derive(Default)]
struct Decoded {
    addresses: Vec<u64>,
    gaps: BTreeMap<String, u32>,
}

impl Sink for Decoded {
    fn executed(&mut self, executed: Executed<'_>) {
        self.addresses.extend(executed.addresses());
    }

    fn event(&mut self, event: Event) {
        if let Event::Gap(gap) = event {
            *self.gaps.entry(gap.trouble.to_string()).or_default() += 1;
        }
    }
}

/// What was compared.
#[derive(Default)]
struct Totals {
    sources: u32,
    instructions: usize,
    differences: u32,
}

/// Compares all sources of the folders; OpenCSD's program leaves a log in `work`. The error says how many differ.
pub(crate) fn judge(folders: &[String], work: &Path) -> Outcome {
    let mut totals = Totals::default();
    for folder in folders {
        println!("{folder}");
        if let Err(error) = judge_folder(Path::new(folder), work, &mut totals) {
            println!("  {error}");
            totals.differences += 1;
        }
    }
    let Totals { sources, instructions, differences } = totals;
    println!(
        "{} folders, {sources} sources, {instructions} instructions: {differences} differ",
        folders.len()
    );
    match differences {
        0 => Ok(()),
        _ => Err(format!("{differences} differences").into()),
    }
}

fn judge_folder(folder: &Path, work: &Path, totals: &mut Totals) -> Outcome {
    let unpacked = Unpacked::default();
    let files = Files::read(folder)?;
    let input = files.input(&unpacked)?;
    let recording = hodo_formats::read(&input)?;
    for loss in &recording.loss {
        println!("  {}", loss.detail);
    }
    for buffer in coresight::buffers(&input)? {
        // All sources of a buffer see the same memory.
        let pid =
            buffer.sources.iter().find_map(|source| source.stream.thread).map_or(0, |thread| thread.pid);
        let space = space(&files, &recording, pid);
        let mut theirs = listed(&folder.canonicalize()?, work, &buffer.name, &space)?;
        for source in &buffer.sources {
            let StreamKind::Etm(config) = &source.stream.kind else { continue };
            let ours = decode(&space, &source.stream.pieces, config);
            // It has the trace ID of a buffer without frames from the unit's settings.
            let expected = theirs.remove(&source.trace_id).unwrap_or_default();
            let is_equal = compare(&format!("{} {:02x}", buffer.name, source.trace_id), &ours, &expected);
            totals.sources += 1;
            totals.instructions += expected.len();
            totals.differences += u32::from(!is_equal);
        }
        for (id, addresses) in theirs {
            println!("  {} {id:02x}: not read, OpenCSD {} instructions", buffer.name, addresses.len());
        }
    }
    Ok(())
}

/// Prints a line for a source, and returns whether both are equal.
fn compare(name: &str, ours: &Decoded, expected: &[u64]) -> bool {
    let same = ours.addresses.iter().zip(expected).take_while(|(ours, theirs)| ours == theirs).count();
    let is_equal = ours.addresses == expected;
    let verdict = match is_equal {
        true => "equal".to_owned(),
        false => {
            let at = |addresses: &[u64]| addresses.get(same).map_or("end".to_owned(), |at| format!("{at:x}"));
            format!("DIFFERENT from number {same} on: {}, OpenCSD {}", at(&ours.addresses), at(expected))
        }
    };
    println!("  {name}: {} instructions, OpenCSD {}: {verdict}", ours.addresses.len(), expected.len());
    for (reason, count) in &ours.gaps {
        println!("    {count} gaps: {reason}");
    }
    is_equal
}

/// The files of a snapshot.
pub(crate) struct Files {
    folder: String,
    files: BTreeMap<String, Vec<u8>>,
}

/// The file that lists the others.
const FIRST_FILE: &str = "snapshot.ini";

impl Files {
    pub(crate) fn read(folder: &Path) -> Outcome<Files> {
        let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
        while let Some(inner) = folders.pop() {
            for entry in fs::read_dir(inner)? {
                let path = entry?.path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => {
                        let name = path.strip_prefix(folder)?.to_string_lossy().into_owned();
                        files.insert(name, fs::read(&path)?);
                    }
                }
            }
        }
        Ok(Files { folder: folder.to_string_lossy().into_owned(), files })
    }

    pub(crate) fn input<'f>(&'f self, unpacked: &'f Unpacked) -> Outcome<Input<'f>> {
        let first = self.files.get(FIRST_FILE).ok_or_else(|| format!("no {FIRST_FILE}"))?;
        let others = self.files.iter().map(|(name, bytes)| OtherFile { name: name.clone(), bytes });
        let others = others.filter(|other| other.name != FIRST_FILE).collect();
        Ok(Input { others, folder: &self.folder, ..Input::file(first, unpacked) })
    }

    /// The bytes of a file that the recording names.
    fn bytes(&self, path: &Path) -> Option<&[u8]> {
        self.files.get(&*path.strip_prefix(&self.folder).ok()?.to_string_lossy()).map(Vec::as_slice)
    }
}

/// The code of the dumps of a process.
pub(crate) fn space<'f>(files: &'f Files, recording: &Recording<'_>, pid: u32) -> AddressSpace<'f> {
    let mut space = AddressSpace::new();
    let mappings = recording.sideband.iter().filter_map(|sideband| match &sideband.kind {
        SidebandKind::Map(mapping) if sideband.thread.pid == pid => Some(mapping),
        _ => None,
    });
    for (module, mapping) in mappings.enumerate() {
        let Some(bytes) = files.bytes(Path::new(&*String::from_utf8_lossy(mapping.name))) else { continue };
        let bytes = &bytes[mapping.file_offset as usize..][..mapping.length as usize];
        let content = Content { bytes, origin: Origin { module: module as u32, offset: mapping.address } };
        space.map(mapping.address..mapping.address + mapping.length, content, 0);
    }
    space
}

fn decode(space: &AddressSpace<'_>, pieces: &[Piece<'_>], config: &Config) -> Decoded {
    let mut decoded = Decoded::default();
    let mut programs = [Program::new(space, &NoLabels)];
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    for piece in pieces {
        let bytes = piece.bytes;
        let first = find_sync(bytes);
        let mut next = first;
        while let Some(start) = next {
            let behind = start + A_SYNC.len();
            next = find_sync(&bytes[behind..]).map(|at| behind + at);
            let span = start..next.unwrap_or(bytes.len());
            let decoder = Decoder::new(bytes, span, config, &schedule);
            let decoder = if first == Some(start) { decoder } else { decoder.behind_another() };
            decoder.decode(&mut programs, &mut decoded);
        }
    }
    decoded
}

/// Returns the addresses that OpenCSD's program decodes of a buffer, by trace ID.
fn listed(
    folder: &Path,
    work: &Path,
    buffer: &str,
    space: &AddressSpace<'_>,
) -> Outcome<BTreeMap<u8, Vec<u64>>> {
    let mut child = Command::new("trc_pkt_lister")
        .args(["-decode_only", "-no_time_print", "-logstdout", "-src_name", buffer, "-ss_dir"])
        .arg(folder)
        .current_dir(work)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = child.stdout.take().ok_or("trc_pkt_lister has no output")?;
    let mut all: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
    for line in BufReader::with_capacity(1 << 20, output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        let Some((head, range)) = line.split_once("INSTR_RANGE(exec range=0x") else { continue };
        let id =
            head.split("ID:").nth(1).and_then(|text| u8::from_str_radix(text.split(';').next()?, 16).ok());
        let mut ends = range.split(":[0x").map(|part| part.split([']', ' ', ')']).next().unwrap_or_default());
        let mut address = || u64::from_str_radix(ends.next()?, 16).ok();
        let (Some(id), Some(begin), Some(end)) = (id, address(), address()) else {
            return Err(format!("no range in {line}").into());
        };
        let isa = if line.contains("ISA=T32") { Isa::T32 } else { Isa::A64 };
        let addresses = all.entry(id).or_default();
        let mut at = begin;
        while at < end {
            addresses.push(at);
            let bytes = space.at(at, 0).map_or(&[][..], |(content, _)| content.bytes);
            at += isa.instruction(bytes, at).map_or(4, |instruction| instruction.step().length.into());
        }
    }
    child.wait()?;
    // It appends to a log, whatever the options say.
    let _ = fs::remove_file(work.join("trc_pkt_lister.ppl"));
    Ok(all)
}
